// SPDX-License-Identifier: Apache-2.0
// Jobs whose connections between hosts are TLS with certificates of both ends. Hosts are processes that say different names, and share no memory.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "actors/ports/link/sockets.hpp"
#include "tests/certificates.hpp"
#include "tests/processes/apart.hpp"
#include "tests/processes/processes.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/seed.hpp"

namespace tls_test {

using namespace engine_tests;
using namespace process_tests;
using certificate_tests::authority;
using troupe::communicator;
using files = troupe::actors::tls_identity::files;

namespace {

troupe::engine_options with(const files& who) {
  troupe::engine_options options;
  options.log_level = "off";
  options.tls_certificate = who.certificate;
  options.tls_key = who.key;
  options.tls_authority = who.authority;
  return options;
}

/// A file that appears whole, as processes of one host may share.
class shared_text {
public:
  void write(const std::string& text) const { std::filesystem::rename(in_.write("part", text), path()); }
  std::string read() const {
    while (!std::filesystem::exists(path())) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    std::ifstream file{path(), std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
  }

private:
  std::filesystem::path path() const { return in_.path() / "whole"; }
  certificate_tests::folder in_;
};

bool says(const ended& e, const std::string& text) {
  for (const std::string& line : e.said)
    if (line.find(text) != std::string::npos) return true;
  MESSAGE("\"", text, "\" is not in: ", e.said.empty() ? std::string{"nothing"} : e.said.back());
  return false;
}

}  // namespace

TEST_CASE("TLS: random collectives, sends and a grow between hosts with certificates are right to the last byte") {
  authority all{"an authority"};
  std::vector<files> who;
  for (int p = 0; p < 3; ++p) who.push_back(all.issue("process " + std::to_string(p)));
  const std::string at = free_address();
  const std::uint64_t drawn = seed();
  const auto ends = run_processes(3, [&](const member& m) {
    troupe::engine engine(with(who[static_cast<std::size_t>(m.process)]));
    engine.join(
        2,
        [&](communicator& comm) {
          run_any_jobs(comm, drawn, 40);
          std::vector<std::uint64_t> long_one(700'000, static_cast<std::uint64_t>(comm.rank()));
          const int next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
          std::vector<std::uint64_t> got(long_one.size());
          auto sent = comm.send_async(long_one, next);
          comm.recv(got, before);
          sent.wait();
          if (got.front() != static_cast<std::uint64_t>(before) || got.back() != got.front())
            throw std::runtime_error("wrong bytes of a send");
        },
        apart(m, at));
  });
  CHECK(trouble(ends) == "");
}

TEST_CASE("TLS: who has no certificate, or a wrong one, is refused with a reason on both sides, and disturbs no job") {
  authority right{"an authority"}, strange{"another authority"};
  const files good = right.issue("good");
  files bad;
  std::string told, noted;
  SUBCASE("none") {
    told = "the process at the other end speaks TLS, this one does not; all processes of a job need certificates";
    noted = "the process at the other end speaks no TLS, this one does";
  }
  SUBCASE("of another authority") {
    bad = strange.issue("bad", right);
    told = "it refuses this process's certificate: tlsv1 alert unknown ca";
    noted = "its certificate /CN=bad is refused: unable to get local issuer certificate";
  }
  SUBCASE("out of date") {
    bad = right.issue("bad", {-std::chrono::hours{2}, -std::chrono::minutes{1}});
    told = "it refuses this process's certificate: sslv3 alert certificate expired";
    noted = "its certificate /CN=bad is refused: certificate has expired";
  }
  SUBCASE("believes in another authority") {
    bad = right.issue("bad", strange);
    told = "its certificate /CN=an authority is refused: self-signed certificate in certificate chain";
    noted = "it refuses this process's certificate: tlsv1 alert unknown ca";
  }
  SUBCASE("the right one, and another key") {
    bad = good;
    told = "does not have this job's key";  // the process sees that first, and goes
  }
  const std::string at = free_address(), second = free_address();
  // Process 2 comes with it, as process 1 of a job of two; then process 1 comes. In the second job nobody else does.
  const auto ends = run_processes(3, [&](const member& m) {
    for (const bool alone : {false, true}) {
      troupe::engine engine(with(m.process == 2 ? bad : good));
      troupe::join_options how = apart(m, alone ? second : at);
      how.process = m.process == 2 ? 1 : m.process;
      how.processes = 2;
      how.deadline = std::chrono::milliseconds{alone && m.process == 0 ? 4000 : 30'000};
      if (m.process == 2 && told.find("key") != std::string::npos && bad.key == good.key)
        how.key = std::string(64, '6');
      if (m.process == 1 && alone) return;
      if (m.process == 1) std::this_thread::sleep_for(std::chrono::milliseconds{700});
      try {
        communicator comm = engine.join(how);
        std::vector<int> one{1};
        comm.all_reduce(one, troupe::sum);
        m.say("sum " + std::to_string(one[0]));
      } catch (const troupe::error& e) {
        m.say((e.code_value() == errc::mismatch ? "mismatch: " : "another error: ") + std::string{e.what()});
      }
    }
  });
  CHECK(trouble(ends) == "");
  REQUIRE(ends[0].said.size() == 2);
  CHECK(ends[0].said[0] == "sum 2");
  CHECK(says(ends[0], "process 1 has not come"));
  if (!noted.empty()) CHECK(says(ends[0], "; turned away was tcp://127.0.0.1:"));
  CHECK(says(ends[0], noted));
  CHECK(says(ends[1], "sum 2"));
  REQUIRE(ends[2].said.size() == 2);
  for (const std::string& line : ends[2].said) {
    CAPTURE(line);
    CHECK(line.find("mismatch: the rendezvous at ") == 0);
    CHECK(line.find(told) != std::string::npos);
  }
}

TEST_CASE("TLS: a process with a certificate is told at once that the others have none") {
  authority all{"an authority"};
  const files who = all.issue("one");
  const std::string at = free_address();
  const auto ends = run_processes(2, [&](const member& m) {
    troupe::engine engine(with(m.process == 1 ? who : files{}));
    troupe::join_options how = apart(m, at);
    how.deadline = std::chrono::milliseconds{m.process == 0 ? 4000 : 30'000};
    try {
      communicator comm = engine.join(how);
    } catch (const troupe::error& e) {
      m.say(e.what());
    }
  });
  CHECK(says(ends[0], "what called speaks TLS, this process does not; all processes of a job need certificates"));
  CHECK(says(ends[1], "refused this process: it speaks no TLS, this process does; all processes of a job need"));
}

TEST_CASE("TLS: where processes of a host meet without a network, they still must agree on it") {
  authority all{"an authority"};
  const files who = all.issue("one");
  const auto ends = run_processes(2, [&](const member& m) {
    troupe::engine engine(with(m.process == 1 ? who : files{}));
    try {
      communicator comm = engine.join(m.how());
    } catch (const troupe::error& e) {
      m.say(e.what());
    }
  });
  for (const ended& e : ends) CHECK(says(e, R"(processes 0 and 1 differ: "tls = no" and "tls = yes")"));
}

TEST_CASE("TLS: a job grows, by an id of its own, too") {
  authority all{"an authority"};
  const files who = all.issue("one");
  const shared_text invitation, id;
  const auto ends = run_processes(3, [&](const member& m) {
    troupe::engine engine(with(who));
    if (m.process == 2) {
      troupe::join_options how;
      how.rendezvous = invitation.read();
      how.interfaces = "lo", how.host = "new";
      communicator comm = engine.join(how);
      std::vector<int> one{1};
      comm.all_reduce(one, troupe::sum);
      m.say("sum " + std::to_string(one[0]));
      return;
    }
    troupe::join_options how;
    how.interfaces = "lo", how.host = "host " + std::to_string(m.process);
    if (m.process == 0) {
      troupe::id_options made;
      made.listen = "tcp://127.0.0.1:0";
      made.tls_certificate = who.certificate, made.tls_key = who.key, made.tls_authority = who.authority;
      const troupe::job_id which = troupe::make_id(made);
      id.write({reinterpret_cast<const char*>(which.bytes.data()), which.bytes.size()});
    }
    troupe::job_id which;
    const std::string text = id.read();
    std::memcpy(which.bytes.data(), text.data(), std::min(text.size(), which.bytes.size()));
    communicator comm = engine.communicator(which, 2, m.process, how);
    comm = comm.grow(
        1, {.invite = [&](const std::string& word) { invitation.write(word); }, .listen = "tcp://127.0.0.1:0"});
    std::vector<int> one{1};
    comm.all_reduce(one, troupe::sum);
    m.say("sum " + std::to_string(one[0]));
  });
  CHECK(trouble(ends) == "");
  for (const ended& e : ends) CHECK(says(e, "sum 3"));
}

TEST_CASE("TLS: the launcher serves with the certificate of its environment") {
  authority all{"an authority"};
  const files who = all.issue("launcher");
  const std::string variables = "TROUPE_ENGINE_TLS_CERTIFICATE=" + who.certificate +
                                " TROUPE_ENGINE_TLS_KEY=" + who.key + " TROUPE_ENGINE_TLS_AUTHORITY=" + who.authority;
  const std::string bench = std::string{" "} + TROUPE_PROGRAM +
                            " bench --collective all_reduce -b 64K -e 64K -n 2 -w 1 --processes 2 >/dev/null";
  CHECK(std::system((variables + bench).c_str()) == 0);
  const std::string launch = std::string{" "} + TROUPE_PROGRAM + " launch -n 2 " + TROUPE_PROGRAM +
                             " bench --collective all_reduce -b 8 -e 8 -n 2 -w 1 >/dev/null";
  CHECK(std::system((variables + launch).c_str()) == 0);
}

}  // namespace tls_test
