// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/launch/hosts.hpp"

#include <array>
#include <optional>

#include <toml++/toml.h>

#include "engine/world/launcher_environment.hpp"
#include "memory/error.hpp"
#include "memory/read_file.hpp"
#include "memory/spelling.hpp"

namespace troupe::launch {

namespace {

constexpr int most_slots = 65536;

class hosts_reader {
public:
  explicit hosts_reader(const std::string& name) : name_(name) {}

  std::vector<host> read(std::string_view text) {
    toml::table document;
    try {
      document = toml::parse(text);
    } catch (const toml::parse_error& problem) {
      fail(problem.source().begin.line, std::string{problem.description()});
    }
    for (const auto& [key, value] : document)
      if (key.str() != "host")
        fail(value, "there is no key " + quoted(key.str()) + " here; a host is a table [[host]]");
    const toml::array* const list = document["host"].as_array();
    if (list == nullptr || list->empty()) fail(1, "it names no host; write [[host]] and its address");
    std::vector<host> hosts;
    for (const toml::node& each : *list) {
      if (!each.is_table()) fail(each, "a host is a table: [[host]]");
      hosts.push_back(host_of(*each.as_table()));
    }
    return hosts;
  }

private:
  [[noreturn]] void fail(std::size_t line, const std::string& sentence) const {
    throw error(errc::bad_config, name_ + ":" + std::to_string(line) + ": " + sentence);
  }
  [[noreturn]] void fail(const toml::node& at, const std::string& sentence) const {
    fail(at.source().begin.line, sentence);
  }

  static std::string quoted(std::string_view text) { return '"' + std::string{text} + '"'; }

  std::string text_of(const toml::node& node, std::string_view key) const {
    const auto text = node.value_exact<std::string>();
    if (!text || text->empty()) fail(node, std::string{key} + " must be a text between quotes");
    return *text;
  }

  /// What is handed to the host's command cannot begin like one of its options.
  std::string address_of(const toml::node& node) const {
    std::string text = text_of(node, "address");
    if (text.front() == '-' || text.find_first_of(" \t\r\n") != std::string::npos)
      fail(node, "address " + quoted(text) + " is none; write a host's name or number");
    return text;
  }

  std::vector<std::string> command_of(const toml::node& node) const {
    const toml::array* const words = node.as_array();
    if (words == nullptr) fail(node, R"(command must be a list of words, for example ["ssh", "-p", "2222", "node1"])");
    std::vector<std::string> command;
    for (const toml::node& word : *words) command.push_back(text_of(word, "each word of command"));
    return command;
  }

  std::string pod_of(const toml::node& node) const {
    std::string text = text_of(node, "pod");
    try {
      static_cast<void>(groups_of_pod(text, "pod"));
    } catch (const error& wrong) {
      fail(node, wrong.what());
    }
    return text;
  }

  host host_of(const toml::table& table) const {
    static constexpr std::array<std::string_view, 5> keys{"address", "slots", "command", "directory", "pod"};
    host made;
    bool commanded = false;
    for (const auto& [key, value] : table) {
      if (key.str() == "address") {
        made.address = address_of(value);
      } else if (key.str() == "slots") {
        const auto slots = value.value_exact<std::int64_t>();
        if (!slots || *slots < 1 || *slots > most_slots) fail(value, "slots must be 1 … " + std::to_string(most_slots));
        made.slots = static_cast<int>(*slots);
      } else if (key.str() == "command") {
        made.command = command_of(value);
        commanded = true;
      } else if (key.str() == "directory") {
        made.directory = text_of(value, "directory");
      } else if (key.str() == "pod") {
        made.pod = pod_of(value);
      } else {
        const auto near = closest(key.str(), keys);
        fail(value, "a host has no key " + quoted(key.str()) +
                        (near.empty() ? "; there are address, slots, command, directory and pod"
                                      : "; did you mean " + std::string{near} + "?"));
      }
    }
    if (made.address.empty()) fail(table, "this host has no address");
    // Never a question at the terminal, which sixty-four of them would ask at once.
    if (!commanded) made.command = {"ssh", "-T", "-o", "BatchMode=yes", made.address};
    return made;
  }

  const std::string& name_;
};

}  // namespace

std::vector<host> parse_hosts(std::string_view toml, const std::string& name) { return hosts_reader{name}.read(toml); }

std::vector<host> read_hosts(const std::string& path) {
  const file_text file = read_file(path, most_config_bytes);
  if (!file.problem.empty()) throw error(errc::bad_config, path + ": cannot be read: " + file.problem);
  return parse_hosts(file.text, path);
}

int slots_of(const std::vector<host>& hosts) {
  int slots = 0;
  for (const host& each : hosts) slots += each.slots;
  return slots;
}

std::vector<std::size_t> place_processes(const std::vector<host>& hosts, int processes, const std::string& name) {
  const int slots = slots_of(hosts);
  if (processes > slots)
    throw error(errc::bad_config, name + " has " + plural(static_cast<std::size_t>(slots), "slot") + " for " +
                                      std::to_string(processes) + (processes == 1 ? " process" : " processes") +
                                      "; give its hosts more slots, or start fewer processes (-n " +
                                      std::to_string(slots) + ")");
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < hosts.size(); ++at)
    for (int slot = 0; slot < hosts[at].slots && places.size() < static_cast<std::size_t>(processes); ++slot)
      places.push_back(at);
  return places;
}

}  // namespace troupe::launch
