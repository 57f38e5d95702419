// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a member hears what to measure: from the driver's socket (BENCH_SOCKET), on which it sleeps between points so that contenders
// that are not at work burn no core; or, run by hand, from the arguments: `all_reduce:8 broadcast:65536 …`.

#include "bench/harness/measure.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

class control {
public:
  /// Throws std::runtime_error if the driver cannot be reached. `index`: of this member among its contender's.
  control(int argc, char** argv, int index) : by_hand_(argv + 1, argv + argc), index_(index) {
    const char* path = std::getenv("BENCH_SOCKET");
    if (path == nullptr) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (std::strlen(path) >= sizeof address.sun_path) throw std::runtime_error("BENCH_SOCKET is too long a path");
    std::strcpy(address.sun_path, path);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0 || connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error(std::string("cannot reach the driver at ") + path + ": " + std::strerror(errno));
    send_line("hello " + std::to_string(index));
  }
  control(const control&) = delete;
  control& operator=(const control&) = delete;
  ~control() {
    if (socket_ >= 0) close(socket_);
  }

  /// Empty: nothing more to measure. Throws std::runtime_error for a line it does not understand.
  std::optional<request_line> next() {
    if (socket_ >= 0) {
      const std::string line = read_line();
      if (line.empty() || line == "quit") return std::nullopt;
      return parse_request(line);
    }
    if (at_ == by_hand_.size()) return std::nullopt;
    std::string text = by_hand_[at_++];
    for (char& c : text)
      if (c == ':') c = ' ';
    return parse_request(text);
  }

  /// Only the first member's answers are of interest.
  void answer(const std::string& json) {
    if (index_ != 0) return;
    if (socket_ >= 0) send_line(json);
    else std::puts(json.c_str()), std::fflush(stdout);
  }
  void fail(const char* contender, const std::string& why) {
    std::string clean;
    for (char c : why) clean += c == '"' || c == '\\' ? '\'' : static_cast<unsigned char>(c) < 32 ? ' ' : c;
    answer("{\"contender\":\"" + std::string(contender) + "\",\"error\":\"" + clean + "\"}");
  }

private:
  static std::optional<uneven> parse_uneven(const std::string& text) {
    constexpr std::array names{"same", "fresh", "random", "skewed"};
    const auto at = std::find(names.begin(), names.end(), text);
    if (at == names.end()) return std::nullopt;
    return static_cast<uneven>(at - names.begin());
  }
  /// "COLLECTIVE BYTES [BUDGET_MS [FRESH [CHECK [ROTATE]]]] [KEY=VALUE …]", keys: choreography, protocol, counts (same, fresh; of all_to_all_v random, skewed), lot.
  static request_line parse_request(const std::string& text) {
    std::istringstream words(text);
    std::vector<std::string> plain;
    request_line r;
    const auto bad = [&](const std::string& why) {
      return std::runtime_error("not a point: '" + text + "': " + why +
                                "; write COLLECTIVE:BYTES[:KEY=VALUE…], e.g. all_reduce:1024:protocol=simple");
    };
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      const std::string key = word.substr(0, equals), value = equals < word.size() ? word.substr(equals + 1) : "";
      if (equals == std::string::npos) plain.push_back(word);
      else if (key == "choreography") r.choreography = value;
      else if (key == "protocol") r.protocol = value;
      else if (const auto counts = parse_uneven(value); key == "counts" && counts) r.counts = *counts;
      else if (key == "lot") r.lot = std::atoi(value.c_str());
      else throw bad("no such key or value as " + word);
    }
    const auto parsed = plain.empty() ? std::nullopt : parse_collective(plain[0]);
    if (!parsed) throw bad("no such operation");
    r.bytes = plain.size() > 1 ? std::strtoull(plain[1].c_str(), nullptr, 10) : 0;
    if (r.bytes == 0) throw bad("no size");
    const auto flag = [&](std::size_t at, bool otherwise) { return plain.size() > at ? plain[at] != "0" : otherwise; };
    if (plain.size() > 2) r.budget_ms = std::atof(plain[2].c_str());
    if (*parsed != collective::all_to_all_v && (r.counts == uneven::random || r.counts == uneven::skewed))
      throw bad("only all_to_all_v has such counts");
    r.what = *parsed, r.fresh = flag(3, false), r.check = flag(4, true), r.rotate = flag(5, false);
    return r;
  }
  std::string read_line() {
    std::string line;
    for (char c;;) {
      const ssize_t got = ::read(socket_, &c, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return {};
      if (c == '\n') return line;
      line += c;
    }
  }
  void send_line(std::string line) {
    line += '\n';
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t put = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (put < 0 && errno != EINTR) throw std::runtime_error("the driver has gone");
      if (put > 0) sent += static_cast<std::size_t>(put);
    }
  }

  std::vector<std::string> by_hand_;
  std::size_t at_ = 0;
  int socket_ = -1;
  int index_;
};

}  // namespace bench
