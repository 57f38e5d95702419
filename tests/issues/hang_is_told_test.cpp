// SPDX-License-Identifier: Apache-2.0
// A program whose ranks wait for one that never calls hung without a word; first for a collective, then also for a send or receive, and in a function of its own.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <regex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <troupe.hpp>
#include <unistd.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// Keeps what is written to standard error while it lives.
class listener {
public:
  listener() : kept_(dup(STDERR_FILENO)), file_(std::tmpfile()) { dup2(fileno(file_), STDERR_FILENO); }
  ~listener() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
    std::fclose(file_);
  }
  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;
  std::string heard() const {
    std::string text(1 << 16, '\0');
    const ssize_t size = pread(fileno(file_), text.data(), text.size(), 0);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

private:
  int kept_;
  std::FILE* file_;
};

std::size_t times(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("whoever waits for a rank that does not call is told of in the log, once, though no thread waits") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    engine e;
    const auto ears = std::make_unique<listener>();
    auto comms = e.communicators(4);
    std::array<int, 3> data{};
    request one = comms[1].all_reduce_async(data), other;
    if (!waits) other = comms[2].all_reduce_async(data);
    for (int i = 0; i < 80 && ears->heard().empty(); ++i) {
      if (waits) CHECK_FALSE(one.wait_for(250ms));
      else std::this_thread::sleep_for(250ms);
    }
    std::this_thread::sleep_for(1500ms);  // and not again
    const std::string heard = ears->heard();
    CAPTURE(heard);
    CHECK(times(heard, "waiting for more than 5 s") == 1);
    CHECK(heard.find("all_reduce") != std::string::npos);
    CHECK(heard.find(waits ? "rank 1 waits; ranks 0, 2 and 3 have not called it"
                           : "ranks 1 and 2 wait; ranks 0 and 3 have not called it") != std::string::npos);
    comms[0].abort();
    static_cast<void>(one.try_wait());
    static_cast<void>(other.try_wait());
  }
}

TEST_CASE("a send and a receive that nobody matches are told of in the log, once each, though no thread waits") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    engine e;
    const auto ears = std::make_unique<listener>();
    auto comms = e.communicators(3);
    std::array<int, 3> sent{}, received{}, others{};
    call_options tagged;
    tagged.tag = 9;
    request out = comms[0].send_async(sent, 1), behind = comms[0].send_async(sent, 1),
            in = comms[2].recv_async(received, 1, tagged);
    // Both have come to these, or to the one and soon to the other.
    request good = comms[1].send_async(others, 2);
    comms[2].recv(received, 1);
    good.wait();
    const auto told = [&] { return times(ears->heard(), "waiting for more than 5 s"); };
    for (int i = 0; i < 80 && told() < 2; ++i) {
      if (waits) CHECK_FALSE(out.wait_for(250ms));
      else std::this_thread::sleep_for(250ms);
    }
    std::this_thread::sleep_for(3s);  // and not again
    const std::string heard = ears->heard();
    CAPTURE(heard);
    CHECK(told() == 2);
    CHECK(heard.find("world, send(count 3, i32, to rank 1): rank 0 waits; rank 1 has not called the matching recv") !=
          std::string::npos);
    CHECK(heard.find("world, recv(count 3, i32, from rank 1, tag 9): rank 2 waits; rank 1 has not called the matching "
                     "send") != std::string::npos);
    comms[1].abort();
    for (request* one : {&out, &behind, &in}) static_cast<void>(one->try_wait());
  }
}

TEST_CASE("a part that is never made ready is told of in the log, once, though no thread waits") {
  for (const std::string protocol : {"", "simple"}) {
    CAPTURE(protocol);
    engine e;
    const auto ears = std::make_unique<listener>();
    auto comms = e.communicators(2);
    std::array<int, 4> in[2]{}, out[2]{};
    call_options options;
    if (!protocol.empty()) options.protocol = *parse_message_protocol(protocol);
    std::vector<partitioned> calls;
    for (std::size_t r = 0; r < 2; ++r)
      calls.push_back(comms[r].all_reduce_init(in[r], out[r], sum, partitions(4), options));
    for (int repetition = 0; repetition < 2; ++repetition) {
      CAPTURE(repetition);
      for (partitioned& one : calls) one.start();
      for (int part = 0; part < 4; ++part) calls[0].ready(part);
      calls[1].ready(1);
      const auto told = [&] { return times(ears->heard(), "waiting for more than 5 s"); };
      const std::size_t before = told();
      for (int i = 0; i < 80 && told() == before; ++i) std::this_thread::sleep_for(250ms);
      std::this_thread::sleep_for(1500ms);  // and not again
      CHECK(told() == before + 1);
      const std::string heard = ears->heard();
      CAPTURE(heard);
      CHECK(heard.find("rank 1: part 0 of 4 was not made ready, part 2 of 4 was not made ready, part 3 of 4 was not "
                       "made ready") != std::string::npos);
      for (const int part : {0, 2, 3}) calls[1].ready(part);
      for (partitioned& one : calls) one.wait();
    }
  }
}

TEST_CASE("a shrink that waits for a rank that does not come is told of in the log, once a round") {
  engine e;
  const auto ears = std::make_unique<listener>();
  auto comms = e.communicators(4);
  const auto told = [&] { return times(ears->heard(), "waiting for more than 5 s"); };
  std::array<int, 4> left{};
  std::vector<std::thread> threads;
  const auto come = [&](std::size_t rank) {
    threads.emplace_back([&, rank] { left[rank] = comms[rank].shrink().size(); });
  };
  come(1);
  come(2);
  for (int i = 0; i < 80 && told() == 0; ++i) std::this_thread::sleep_for(250ms);
  std::this_thread::sleep_for(1500ms);  // and not again, nor by the other
  CHECK(told() == 1);
  const std::string heard = ears->heard();
  CAPTURE(heard);
  const bool both = heard.find("world, shrink: ranks 1 and 2 wait; ranks 0 and 3 have not called it") != heard.npos;
  CHECK(both);
  come(0);
  come(3);
  for (std::thread& each : threads) each.join();
  CHECK(left == std::array{4, 4, 4, 4});
}

TEST_CASE("a function that does not return is told of in the log with its rank, and holds up no other communicator") {
  struct shared {
    std::atomic<bool> hangs{false}, goes_on{false};
  };
  struct sum_of_rank {
    shared* with = nullptr;
    bool hangs = false;
    int operator()(int a, int b) const {
      if (hangs) with->hangs = true;
      // The others are not to do it all before.
      while (!with->hangs || (hangs && !with->goes_on)) std::this_thread::sleep_for(1ms);
      return a + b;
    }
  };
  constexpr std::size_t ranks = 3;
  // In a ring every rank needs every other one's sums. On the direct board units are whoever's that comes.
  for (const std::string protocol : {"ll", "simple", "direct"}) {
    CAPTURE(protocol);
    engine e;
    const auto ears = std::make_unique<listener>();
    auto comms = e.communicators(ranks), others = e.communicators(2);
    shared with;
    std::array<sum_of_rank, ranks> function;
    for (std::size_t r = 0; r < ranks; ++r) function[r] = {&with, r == 1};
    std::array<std::vector<int>, ranks> data;
    data.fill(std::vector<int>(protocol == "direct" ? 200'000 : 3, 1));
    call_options options;
    options.protocol = *parse_message_protocol(protocol);
    if (protocol != "direct") options.choreography = "ring";
    options.deadline = 1s;
    std::array<std::error_code, ranks> ends;
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        try {
          comms[r].all_reduce(data[r], function[r], options);
        } catch (const error& why) {
          ends[r] = why.code();
        }
      });
    const std::string held = "waiting for more than 5 s: world, operation #0 all_reduce";
    for (int i = 0; i < 80 && times(ears->heard(), held) == 0; ++i) std::this_thread::sleep_for(250ms);
    const std::string heard = ears->heard();
    CAPTURE(heard);
    CHECK(times(heard, held) == 1);
    CHECK(heard.find("has failed (the deadline of 1000.0 ms passed on rank ") != std::string::npos);
    CHECK(heard.find("not let go of it, as where a function that reduces does not return") != std::string::npos);
    // By messages its thread may be in the function while it has the turn of another rank, which is named, too, then.
    const std::regex named{"but ranks? ([02](,| and) )?1( and 2)? do(es)? not let go"};
    if (protocol != "direct") CHECK(std::regex_search(heard, named));
    // Meanwhile another communicator's deadlines pass, and its calls are performed.
    std::array<int, 4> more[2]{};
    call_options hasty;
    hasty.deadline = 50ms;
    CHECK(others[0].all_reduce_async(more[0], sum, hasty).try_wait() == make_error_code(errc::timed_out));
    CHECK(others[1].all_reduce_async(more[1]).try_wait() == make_error_code(errc::timed_out));
    std::vector<request> both;
    for (std::size_t r = 0; r < 2; ++r) both.push_back(others[r].all_reduce_async(more[r]));
    for (request& one : both) CHECK_FALSE(one.try_wait());
    with.goes_on = true;
    for (std::thread& t : threads) t.join();
    for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
      CHECK(ends[r] == make_error_code(errc::timed_out));  // 1 may have done it after all
  }
}

TEST_CASE("a function that returns on no rank is told of in the log, with its name, once for each thread, though no "
          "rank looks") {
  struct waiting_program {
    explicit waiting_program(const engine_options& options) : e(options) {}
    engine e;
    std::vector<communicator> comms = e.communicators(2);
    std::vector<std::vector<int>> data;
    std::vector<std::thread> threads;
  };
  std::atomic<bool> goes_on{false};
  const auto hang = [](const void* left, const void*, void* out, std::size_t count, datatype type, void* context) {
    while (!*static_cast<std::atomic<bool>*>(context)) std::this_thread::sleep_for(1ms);
    std::memcpy(out, left, count * size_of(type));
  };
  const auto ears = std::make_unique<listener>();
  const std::vector<std::string> protocols{"ll", "simple", "direct"};
  std::vector<std::unique_ptr<waiting_program>> programs;
  for (const std::string& protocol : protocols) {
    engine_options of_engine;
    if (protocol == "simple") of_engine.workers = 0;  // all threads that there are hang
    waiting_program& p = *programs.emplace_back(std::make_unique<waiting_program>(of_engine));
    p.data.assign(2, std::vector<int>(protocol == "direct" ? 200'000 : 3, 1));
    for (std::size_t r = 0; r < 2; ++r)
      p.threads.emplace_back([&, r, protocol] {
        call_options options;
        options.protocol = *parse_message_protocol(protocol);
        options.deadline = 1s;
        try {
          p.comms[r].all_reduce(p.data[r], named("first_by_" + protocol, user_op(+hang, &goes_on)), options);
        } catch (const error&) {}  // too late, on some rank perhaps
      });
  }
  // Each engine tells of every function of the process.
  const auto told = [&](const std::string& protocol) {
    return times(ears->heard(), "reduces 'first_by_" + protocol + "' (called with ");
  };
  for (const std::string& protocol : protocols)
    for (int i = 0; i < 80 && told(protocol) < protocols.size(); ++i) std::this_thread::sleep_for(250ms);
  std::this_thread::sleep_for(1500ms);  // and not again
  const std::string heard = ears->heard();
  CAPTURE(heard);
  for (const std::string& protocol : protocols) {
    CAPTURE(protocol);
    CHECK(told(protocol) >= protocols.size());
    CHECK(told(protocol) <= 2 * protocols.size());
  }
  goes_on = true;
  for (const auto& each : programs)
    for (std::thread& t : each->threads) t.join();
}
