// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/smpi.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace troupe::smpi {

namespace {

namespace fs = std::filesystem;

/// Switches off what SMPI corrects to resemble TCP on Ethernet (its own documentation, "Configuring SimGrid"), so that a message of n
/// bytes takes latency + n / bandwidth; wtime: MPI_Wtime itself takes no time; precision: seconds.
constexpr std::array options{
    "smpi/bw-factor:0:1",
    "smpi/lat-factor:0:1",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "network/TCP-gamma:1e15",
    "smpi/simulate-computation:no",
    "smpi/send-is-detached-thresh:0",
    "smpi/wtime:0",
    "surf/precision:1e-12",
    "smpi/allreduce:lr",
};

std::string name_of(int host) { return "rank" + std::to_string(host); }

void write_platform(const platform& on, const fs::path& to) {
  std::ofstream out{to};
  out << "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform "
         "version=\"4.1\">\n"
         "<zone id=\"all\" routing=\"Full\">\n";
  const auto link = [&](const std::string& id, double bandwidth, double latency) {
    out << "<link id=\"" << id << "\" sharing_policy=\"SPLITDUPLEX\" bandwidth=\"" << bandwidth << "Bps\" latency=\""
        << latency << "ns\"/>\n";
  };
  for (int h = 0; h < on.hosts; ++h) out << "<host id=\"" << name_of(h) << "\" speed=\"1Gf\"/>\n";
  for (int h = 0; h < on.hosts; ++h) link("port" + std::to_string(h), on.port_bandwidth, on.port_latency);
  const bool has_trunk = on.trunk_bandwidth > 0;
  if (has_trunk) link("trunk", on.trunk_bandwidth, on.trunk_latency);
  for (int a = 0; a < on.hosts; ++a)
    for (int b = a + 1; b < on.hosts; ++b) {  // the way back is the same in the other direction
      out << "<route src=\"" << name_of(a) << "\" dst=\"" << name_of(b) << "\"><link_ctn id=\"port" << a
          << "\" direction=\"UP\"/>";
      if (has_trunk && a < on.hosts / 2 && b >= on.hosts / 2) out << "<link_ctn id=\"trunk\" direction=\"UP\"/>";
      out << "<link_ctn id=\"port" << b << "\" direction=\"DOWN\"/></route>\n";
    }
  out << "</zone>\n</platform>\n";
}

fs::path new_folder() {
  std::string pattern = (fs::temp_directory_path() / "troupe-oracle-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    throw std::runtime_error("cannot make a folder in " + fs::temp_directory_path().string());
  return pattern;
}

std::string text_of(const fs::path& file) {
  std::ifstream in{file};
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// @pre no argument holds a quote
std::string command_of(const platform& on, const std::vector<job>& jobs, const fs::path& folder) {
  std::string command = "cd '" + folder.string() + "' && '" + SMPIRUN "' -quiet -no-privatize -np " +
                        std::to_string(on.hosts) + " -platform platform.xml -hostfile hosts --log=root.threshold:error";
  for (const char* option : options) command += std::string{" --cfg="} + option;
  command += std::string{" '"} + SMPI_COLLECTIVES + "'";
  for (const job& j : jobs) command += " " + j.name + " " + std::to_string(j.ranks) + " " + std::to_string(j.bytes);
  return command + " >times 2>messages </dev/null";
}

}  // namespace

std::vector<std::vector<double>> run(const platform& on, const std::vector<job>& jobs) {
  const fs::path folder = new_folder();
  write_platform(on, folder / "platform.xml");
  {
    std::ofstream hosts{folder / "hosts"};
    for (int h = 0; h < on.hosts; ++h) hosts << name_of(h) << '\n';
  }
  const int status = std::system(command_of(on, jobs, folder).c_str());
  std::istringstream lines{text_of(folder / "times")};
  const std::string messages = text_of(folder / "messages");
  fs::remove_all(folder);
  if (status != 0) throw std::runtime_error("smpirun failed: " + messages);

  std::vector<std::vector<double>> all;
  for (const job& j : jobs) {
    std::string line, name;
    std::getline(lines, line);
    std::istringstream words{line};
    int ranks = 0;
    std::size_t bytes = 0;
    words >> name >> ranks >> bytes;
    if (name != j.name || ranks != j.ranks || bytes != j.bytes)
      throw std::runtime_error("smpi_collectives said \"" + line + "\" of " + j.name);
    std::vector<double> times;
    for (double t = 0; words >> t;) times.push_back(t);
    if (times.size() != static_cast<std::size_t>(ranks))
      throw std::runtime_error("smpi_collectives left ranks out: " + line);
    all.push_back(std::move(times));
  }
  return all;
}

std::vector<double> run_flows(int hosts, const std::vector<link>& links, const std::vector<flow>& flows) {
  const fs::path folder = new_folder();
  {
    std::ofstream out{folder / "flows"};
    out << hosts << ' ' << links.size() << ' ' << flows.size() << '\n';
    for (const link& l : links) out << l.bandwidth << ' ' << l.latency << '\n';
    for (const flow& f : flows) {
      out << f.from << ' ' << f.to << ' ' << f.bytes << ' ' << f.way.size();
      for (const int l : f.way) out << ' ' << l;
      out << '\n';
    }
  }
  std::string command = "cd '" + folder.string() + "' && '" SIMGRID_FLOWS "' --log=root.threshold:error";
  // CM02 is the fluid model alone, without what LV08 adds for TCP. Full: all shares are computed anew at every change. Its default, Lazy, keeps
  // some that have changed: on a fat tree of 12 hosts up to 51 % off Full, and off a dozen lines of progressive filling.
  for (const char* option : {"network/model:CM02", "network/weight-S:0", "network/crosstraffic:0",
                             "network/TCP-gamma:1e15", "network/optim:Full", "surf/precision:1e-12"})
    command += std::string{" --cfg="} + option;
  const int status = std::system((command + " <flows >times 2>messages").c_str());
  std::istringstream lines{text_of(folder / "times")};
  const std::string messages = text_of(folder / "messages");
  fs::remove_all(folder);
  std::vector<double> times;
  for (double t = 0; lines >> t;) times.push_back(t);
  if (status != 0 || times.size() != flows.size()) throw std::runtime_error("simgrid_flows failed: " + messages);
  return times;
}

}  // namespace troupe::smpi
