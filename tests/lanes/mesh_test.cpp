// SPDX-License-Identifier: Apache-2.0
// Several meshes in one process, so that ThreadSanitizer sees all their threads.
#include "actors/ports/link/mesh.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "tests/certificates.hpp"
#include "tests/lanes/meshes.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace mesh_tests;

TEST_CASE("mesh: its thread naps for longer while callers look all the time, and briefly when they have paused") {
  using namespace std::chrono_literals;
  constexpr auto shortest = caller_naps::shortest, longest = caller_naps::longest;
  caller_naps naps;
  caller_naps::clock::time_point now{1h};
  const auto look_for = [&](std::chrono::nanoseconds time, std::chrono::nanoseconds between) {
    for (const auto until = now + time; now < until; now += between) naps.caller_looks(now);
  };
  CHECK_FALSE(naps.end(now));
  CHECK(naps.length() == shortest);
  look_for(1ms, 100us);  // the first look comes after a pause
  CHECK(naps.end(now));
  CHECK(naps.length() == shortest);
  for (auto nap = shortest; nap < longest; nap *= 2) {
    look_for(nap, 100us);
    CHECK(naps.end(now));
    CHECK(naps.length() == 2 * nap);
  }
  look_for(longest, shortest);  // not seldom enough
  CHECK(naps.end(now));
  CHECK(naps.length() == longest);
  // They compute in between: however often they look before and afterwards.
  for (int time = 0; time < 3; ++time) {
    look_for(4ms, 1us);
    now += 2ms;
    look_for(2ms, 1us);
    CHECK(naps.end(now));
    CHECK(naps.length() == shortest);
  }
  look_for(1ms, 100us);
  CHECK(naps.end(now));
  CHECK(naps.length() == 2 * shortest);
  look_for(1ms, 100us);
  now += shortest + 1ns;  // they have gone
  CHECK(naps.end(now));
  CHECK(naps.length() == shortest);
  CHECK_FALSE(naps.end(now));
}

TEST_CASE("chunks of every size arrive whole, aligned and in order, from several processes at once") {
  meshes_of_test job{every_way(), 3};
  constexpr std::size_t sizes[] = {0, 1, 8, 15, 16, 17, 1000, 16'383, 16'384, 16'385, 70'000, 1'000'000, 5'000'000};
  std::vector<std::thread> senders;
  std::vector<std::vector<std::byte>> kept;
  std::mutex mutex;
  for (std::uint32_t p = 0; p < 3; ++p)
    senders.emplace_back([&, p] {
      std::uint32_t sequence = 0;
      for (int round = 0; round < 8; ++round)
        for (const std::size_t bytes : sizes) {
          auto made = payload(bytes, sequence);
          for (std::uint32_t to = 0; to < 3; ++to) {
            if (to == p) continue;
            chunk c;
            c.data = made.data();
            c.bytes = bytes;
            c.source = static_cast<rank_t>(p);
            c.sequence = sequence;
            job.each[p]->send_chunk(to, {}, c);
            job.each[p]->send_credit(to, {}, credit{1, static_cast<rank_t>(p), 0, sequence});
          }
          ++sequence;
          const std::lock_guard lock(mutex);
          kept.push_back(std::move(made));  // no credits here, so nothing is given back before the end
        }
    });
  for (std::thread& t : senders) t.join();
  const int each = static_cast<int>(std::size(sizes)) * 8 * 2;
  // As callers that wait would, beside the meshes' own threads.
  std::atomic<bool> over{false};
  std::thread caller([&] {
    while (!over.load())
      for (const auto& m : job.each)
        if (!m->poll()) static_cast<void>(m->rest());
  });
  for (const auto& h : job.heard) CHECK(comes([&] { return h->chunks.load() == each && h->credits.load() == each; }));
  over.store(true);
  caller.join();
  CHECK(job.went_well());
  for (const auto& m : job.each) CHECK(m->waiting_bytes() == 0);
}

TEST_CASE("packets of NICs come whole and in order among chunks, and what they refer to may be let go of") {
  meshes_of_test job{every_way(), 2};
  std::vector<std::vector<std::byte>> kept;
  std::uint32_t sequence = 0;
  const auto chunk_of = [&](std::size_t bytes) {
    kept.push_back(payload(bytes, sequence));
    chunk c;
    c.data = kept.back().data();
    c.bytes = bytes;
    c.epoch = 3;
    c.source = 0;
    c.sequence = sequence++;
    return c;
  };
  frame_head packet, ready;
  packet.communicator = 5;
  packet.kind = frame_kind::packet;
  ready.kind = frame_kind::ready;
  for (int round = 0; round < 20; ++round)
    for (const std::size_t bytes : {0u, 1u, 17u, 16'351u, 16'352u, 16'353u, 65'536u}) {
      job.each[0]->send_from_nic(1, packet, chunk_of(bytes));
      job.each[0]->send_chunk(1, {}, chunk_of(bytes));
      job.each[0]->send_from_nic(1, ready, chunk_of(0));
      job.each[0]->send_response(1, {}, {3, -1, 9, 9});
    }
  job.each[0]->let_go(5, 0, 3, -1, true);
  for (std::size_t i = 0; i < kept.size(); i += 3) std::ranges::fill(kept[i], std::byte{0xee});
  const listener_of_test& at = *job.heard[1];
  CHECK(comes([&] { return at.chunks.load() == 420 && at.responses.load() == 140; }));
  CHECK(at.packets == 140);
  CHECK(at.readies == 140);
  CHECK(job.went_well());
}

TEST_CASE("two processes of different hosts have one connection, whoever calls first") {
  constexpr std::uint32_t processes = 4;
  for (unsigned round = 0; round < 18; ++round) {
    CAPTURE(round);
    const auto data = payload(1000, 0);
    meshes_of_test job{round % 2 == 0 ? between::sockets : between::tls, processes};
    std::vector<std::thread> senders;
    for (std::uint32_t p = 0; p < processes; ++p)
      senders.emplace_back([&, p] {
        if (round % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds{50 * ((p + 7 * round) % 5)});
        for (std::uint32_t i = 1; i < processes; ++i) {
          const std::uint32_t to = (p + i) % processes;
          if (round % 3 == 2 && to < p) continue;  // the lower ones are called by others alone
          chunk c = some_chunk(data, 1, 0);
          c.source = static_cast<rank_t>(p);
          job.each[p]->send_chunk(to, {}, c);
        }
      });
    for (std::thread& t : senders) t.join();
    for (std::uint32_t p = 0; p < processes; ++p) {
      const int sent_to_it = round % 3 == 2 ? static_cast<int>(p) : static_cast<int>(processes) - 1;
      CHECK(comes([&] { return job.heard[p]->chunks.load() == sent_to_it; }));
      // Also those that have only been greeted, or called for.
      for (std::uint32_t i = 1; i < processes; ++i) job.each[p]->send_credit((p + i) % processes, {}, credit{});
      CHECK(comes([&] { return job.each[p]->connections() == processes - 1; }));
    }
    for (std::uint32_t p = 0; p < processes; ++p)
      CHECK(comes([&] { return job.heard[p]->credits.load() == static_cast<int>(processes) - 1; }));
    CHECK(job.went_well());
  }
}

TEST_CASE("whoever lets go of a buffer that waits to be sent may change it") {
  meshes_of_test job{every_way(), 2};
  // More than the system takes at once.
  std::vector<std::vector<std::byte>> made;
  frame_head head;
  head.communicator = 9;
  for (std::uint32_t i = 0; i < 30; ++i) {
    made.push_back(payload(250'000, i));
    job.each[0]->send_chunk(1, head, some_chunk(made.back(), 5, i));
  }
  job.each[0]->let_go(9, 0, 5, -1, true);
  for (auto& m : made) std::fill(m.begin(), m.end(), std::byte{0});
  CHECK(comes([&] { return job.heard[1]->chunks.load() == 30; }));
  CHECK(job.heard[1]->wrong.load() == 0);
}

TEST_CASE("nothing is settled before there is a connection") {
  // The other one can be called, and never answers.
  meshes_of_test job{every_way(), 2, usual_silence, 1};
  const std::vector<std::byte> made = payload(100, 0);
  CHECK(!job.each[0]->send_chunk(1, {}, some_chunk(made, 5, 0), mesh::may_settle::yes));
  CHECK(job.each[0]->waiting_bytes() > 0);
}

TEST_CASE("settled chunks that wait for long keep no more memory than the window has bytes") {
  std::vector<std::vector<std::byte>> kept;  // no credits here, so nothing is given back before the meshes have gone
  meshes_of_test job{every_way(), 2};
  job.heard[1]->holds_up_to = 100;
  std::uint32_t sequence = 0;
  kept.push_back(payload(100'000, sequence));
  job.each[0]->send_chunk(1, {}, some_chunk(kept.front(), 5, sequence++));
  CHECK(comes([&] { return job.heard[1]->chunks.load() == 1; }));
  const std::size_t before = job.memory.usage().in_use;
  // Each of these lies among what others have sent: 10 KB that are consumed at once.
  constexpr int rounds = 60;
  for (int i = 0; i < rounds * 7; ++i) {
    const bool short_one = i % 7 == 0;
    auto made = payload(short_one ? 100 : 10'000, sequence);
    const bool settled = job.each[0]->send_chunk(1, {}, some_chunk(made, 5, sequence++),
                                                 short_one ? mesh::may_settle::yes : mesh::may_settle::no);
    CHECK(settled == short_one);
    kept.push_back(std::move(made));
  }
  CHECK(comes([&] { return job.heard[1]->chunks.load() == 1 + rounds * 7; }));
  CHECK(job.heard[1]->held.size() == rounds);
  CHECK(job.memory.usage().in_use < before + settled_window);
  CHECK(job.went_well());
}

TEST_CASE("settled chunks are their sender's no more, and as many as the window holds") {
  meshes_of_test job{every_way(), 2};
  job.each[0]->send_credit(1, {}, {});
  CHECK(comes([&] { return job.heard[1]->credits.load() == 1; }));
  frame_head head;
  head.communicator = 9;
  std::uint32_t sequence = 0;
  std::vector<std::vector<std::byte>> kept;
  const auto send = [&](std::size_t bytes) {
    auto made = payload(bytes, sequence);
    const bool settled = job.each[0]->send_chunk(1, head, some_chunk(made, 5, sequence++), mesh::may_settle::yes);
    if (settled) std::fill(made.begin(), made.end(), std::byte{0});
    else kept.push_back(std::move(made));
    return settled;
  };
  CHECK(!send(most_settled + 1));
  // The receiver holds the first 64 that come, so what lies beside them, too.
  int settled = 0;
  while (send(30'000)) ++settled;
  CHECK(settled == static_cast<int>(settled_window / padded(sizeof(frame_head) + sizeof(chunk_body) + 30'000)));
  CHECK(!send(most_settled));
  const auto all_come = [&] { return job.heard[1]->chunks.load() == static_cast<int>(sequence); };
  CHECK(comes(all_come));
  {
    const std::lock_guard lock(job.heard[1]->mutex);
    job.heard[1]->held.clear();
  }
  CHECK(!send(60'000));  // it has not been told yet; this brings the answer
  CHECK(comes(all_come));
  CHECK(comes([&] { return send(60'000); }));
  CHECK(comes(all_come));
  CHECK(job.went_well());
}

TEST_CASE("a caller sleeps where it hears the others, until something comes, or it is woken, or for long") {
  meshes_of_test job{every_way(), 2};
  mesh& here = *job.each[1];
  const auto never = no_deadline;
  parker place;
  job.each[0]->send_credit(1, {}, {});
  CHECK(comes([&] { return job.heard[1]->credits.load() == 1; }));
  CHECK(comes([&] { return here.sleep(place, never) == mesh::slept::in_vain; }));
  // Each of these is heard, whoever reads it, and none of the sleeps is for ever.
  std::atomic<bool> over{false};
  std::atomic<int> woken{0};
  std::thread sleeper([&] {
    while (!over.load()) woken += here.sleep(place, never) == mesh::slept::woken;
  });
  std::thread waker([&] {
    for (int i = 0; i < 2000; ++i) place.wake();
  });
  std::thread other([&] {  // only one sleeps here at a time
    parker second;
    while (!over.load())
      if (here.sleep(second, never) == mesh::slept::not_here && !here.rest()) std::this_thread::yield();
  });
  const auto heard = [&] { return job.heard[1]->credits.load() + job.heard[1]->chunks.load(); };
  for (int i = 0; i < 2000; ++i) {
    if (i % 2 == 0) job.each[0]->send_credit(1, {}, {});
    else {
      const auto sequence = static_cast<std::uint32_t>(i);
      CHECK(job.each[0]->send_chunk(1, {}, some_chunk(payload(64, sequence), 5, sequence), mesh::may_settle::yes));
    }
    if (i % 100 == 0) CHECK(comes([&] { return heard() == i + 2; }));
  }
  CHECK(comes([&] { return heard() == 2001; }));
  waker.join();
  CHECK(comes([&] {
    place.wake();
    return woken.load() > 0;
  }));
  over.store(true);
  sleeper.join();
  other.join();
  // A wake-up that comes before the sleep counts; and one that comes in it.
  CHECK(comes([&] { return here.sleep(place, never) == mesh::slept::in_vain; }));
  // Where the mesh's thread is at work there is no place to sleep for a moment.
  place.wake();
  CHECK(comes([&] { return here.sleep(place, never) == mesh::slept::woken; }));
  CHECK(comes([&] { return here.sleep(place, std::chrono::steady_clock::now()) == mesh::slept::woken; }));
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    place.wake();
  });
  CHECK(comes([&] { return here.sleep(place, never) == mesh::slept::woken; }));
  late.join();
  job.each[0].reset();
  CHECK(comes([&] { return here.sleep(place, never) != mesh::slept::in_vain && job.heard[1]->lefts.load() == 1; }));
  CHECK(here.sleep(place, never) == mesh::slept::not_here);
}

TEST_CASE("a long chunk stays with its sender until its receiver says that it may come") {
  meshes_of_test job{every_way(), 2};
  job.heard[1]->says_clear = false;
  const auto made = payload(most_unasked + 1, 0);
  frame_head head;
  head.communicator = 9;
  head.to = 1;
  const epoch_t epoch = point_to_point | 5;
  const auto clear = [&](std::uint32_t sequence) {
    frame_head back;
    back.communicator = 9;
    back.to = 0;
    job.each[1]->send_clear(0, back, {epoch, 1, 0, sequence});
  };
  chunk first = some_chunk(made, epoch, 0);
  job.each[0]->send_chunk(1, head, first);
  job.each[0]->send_credit(1, head, {});  // which comes behind the announcement
  CHECK(comes([&] { return job.heard[1]->credits.load() == 1; }));
  CHECK(job.heard[1]->announced.load() == 1);
  CHECK(job.heard[1]->chunks.load() == 0);
  clear(7);  // of what nobody has announced
  clear(0);
  clear(0);
  CHECK(comes([&] { return job.heard[1]->chunks.load() == 1; }));
  // What is let go of is not sent any more.
  first.sequence = 1;
  job.each[0]->send_chunk(1, head, first);
  CHECK(comes([&] { return job.heard[1]->announced.load() == 2; }));
  job.each[0]->let_go(9, 0, epoch, 1, false);  // a receive from the same rank, which has the same number
  CHECK(job.each[0]->waiting_bytes() > 0);
  job.each[0]->let_go(9, 0, epoch, 1, true);
  CHECK(job.each[0]->waiting_bytes() == 0);
  clear(1);
  job.each[1]->send_credit(0, {}, {});
  CHECK(comes([&] { return job.heard[0]->credits.load() == 1; }));
  job.each[0]->send_credit(1, head, {});
  CHECK(comes([&] { return job.heard[1]->credits.load() == 2; }));
  CHECK(job.heard[1]->chunks.load() == 1);
  CHECK(job.went_well());
}

TEST_CASE("a chunk is received into the place that was offered for it, and into no other") {
  meshes_of_test job{every_way(), 2};
  frame_head head;
  head.communicator = 9;
  head.to = 1;
  const std::size_t bytes = 250'000;
  std::vector<std::byte> place(bytes), other(bytes, std::byte{9});
  const auto offer = [&](std::uint32_t sequence, std::vector<std::byte>& where, std::size_t length) {
    job.each[1]->places(0).offer(9, 1, {77, 5, 0, 0, sequence, length, where.data()});
  };
  const auto send = [&](std::uint32_t sequence, std::uint64_t fingerprint) {
    const auto made = payload(bytes, sequence);
    chunk c = some_chunk(made, 5, sequence);
    c.fingerprint = fingerprint;
    job.each[0]->send_chunk(1, head, c);
    const int before = static_cast<int>(sequence);
    CHECK(comes([&] { return job.heard[1]->chunks.load() == before + 1; }));
  };
  offer(0, place, bytes);
  send(0, 77);
  CHECK(job.heard[1]->held.back().data == place.data());
  CHECK(place == payload(bytes, 0));
  // Of another call, of another length, and one whose operation has ended.
  offer(1, other, bytes);
  send(1, 78);
  offer(2, other, bytes - 1);
  send(2, 77);
  offer(3, other, bytes);
  job.each[1]->let_go(9, 1, 5, -1, true);
  send(3, 77);
  // A send to that rank, which has the same number, ends: that is no matter of what is received from there.
  offer(4, place, bytes);
  job.each[1]->let_go(9, 1, 5, 0, true);
  send(4, 77);
  CHECK(job.heard[1]->held.back().data == place.data());
  CHECK(std::count(other.begin(), other.end(), std::byte{9}) == static_cast<std::ptrdiff_t>(bytes));
  CHECK(job.heard[1]->wrong.load() == 0);
}

TEST_CASE("a place that is withdrawn while it is filled is not written to any more") {
  meshes_of_test job{every_way(), 2};
  frame_head head;
  head.communicator = 9;
  head.to = 1;
  const std::size_t bytes = 8'000'000;
  const auto made = payload(bytes, 0);
  std::vector<std::byte> place(bytes);
  job.heard[1]->reads = false;
  for (std::uint32_t round = 0; round < 20; ++round) {
    job.each[1]->places(0).offer(9, 1, {0, round, 0, 0, 0, bytes, place.data()});
    job.each[0]->send_chunk(1, head, some_chunk(made, round, 0));
    std::this_thread::sleep_for(std::chrono::microseconds{100 * round});
    job.each[1]->let_go(9, 1, round, -1, true);
    std::fill(place.begin(), place.end(), std::byte{5});
    // Behind it the connection is as it was.
    job.each[0]->send_credit(1, head, {});
    CHECK(comes([&] { return job.heard[1]->credits.load() == static_cast<int>(round) + 1; }));
    CHECK(comes([&] { return job.each[0]->waiting_bytes() == 0; }));
    CHECK(std::count(place.begin(), place.end(), std::byte{5}) == static_cast<std::ptrdiff_t>(bytes));
  }
  CHECK(job.heard[0]->losses.load() + job.heard[1]->losses.load() == 0);
}

TEST_CASE("who sends what cannot be read is lost, for everybody") {
  meshes_of_test job{every_way(), 3};
  frame_head head;
  head.kind = frame_kind::pair;
  job.each[1]->send_word(2, head, std::vector<std::byte>(13));
  // Its connections end, so it may accuse the other one; the registrar believes whom it hears first.
  for (const auto& h : job.heard) CHECK(comes([&] { return h->losses.load() >= 1; }));
  const std::lock_guard lock(job.heard[2]->mutex);
  CHECK(job.heard[2]->lost.at(0) == "1: it sent a message that cannot be read");
}

TEST_CASE("a process that leaves in order is not lost") {
  meshes_of_test job{every_way(), 3};
  job.each[1]->send_credit(2, {}, credit{});
  job.each[1]->send_credit(0, {}, credit{});
  job.each[0]->send_credit(1, {}, credit{});
  CHECK(comes([&] {
    return job.heard[2]->credits.load() == 1 && job.heard[0]->credits.load() == 1 && job.heard[1]->credits.load() == 1;
  }));
  job.each[1]->leave();
  CHECK(comes([&] { return job.heard[0]->lefts.load() == 1 && job.heard[2]->lefts.load() == 1; }));
  job.each[2]->send_credit(1, {}, credit{});  // to nobody
  job.each[2]->send_credit(0, {}, credit{});
  CHECK(comes([&] { return job.heard[0]->credits.load() == 2; }));
  CHECK(job.heard[0]->losses.load() + job.heard[2]->losses.load() == 0);
}

TEST_CASE("silence that is kept by beats is no silence") {
  meshes_of_test job{between::memory_of_both, 4, std::chrono::milliseconds{2000}};
  std::this_thread::sleep_for(std::chrono::milliseconds{4000});
  for (const auto& h : job.heard) CHECK(h->losses.load() == 0);
}

TEST_CASE("with TLS a process of another authority, or without a certificate, is turned away and lost, and both are "
          "told why") {
  certificate_tests::authority right{"an authority"}, strange{"another authority"};
  identities who{tls_identity::load(right.issue("zero")), nullptr};
  const char *caller = "", *answerer = "";
  SUBCASE("another authority") {
    who[1] = tls_identity::load(strange.issue("one", right));
    caller = "it refuses this process's certificate: ";
    answerer = "its certificate /CN=one is refused: unable to get local issuer certificate";
  }
  SUBCASE("out of date") {
    who[1] = tls_identity::load(right.issue("one", {-std::chrono::hours{2}, -std::chrono::hours{1}}));
    caller = "certificate expired";
    answerer = "its certificate /CN=one is refused: certificate has expired";
  }
  SUBCASE("no certificate") {
    caller = "the process at the other end speaks TLS, this one does not; all processes of a job need certificates";
    answerer = "the process at the other end speaks no TLS, this one does; all processes of a job need certificates";
  }
  SUBCASE("no certificate where one is called that has none") {
    std::swap(who[0], who[1]);
    caller = "it speaks no TLS, this process does; all processes of a job need certificates";
    answerer = "what called speaks TLS, this process does not; all processes of a job need certificates";
  }
  meshes_of_test job{between::tls, 2, usual_silence, 2, who};
  // Each greets the other one, so both call; the one that is refused first has nobody any more.
  CHECK(comes([&] { return job.heard[0]->losses.load() + job.heard[1]->losses.load() > 0; }));
  const auto any = [&](const char* text) {
    for (const auto& h : job.heard) {
      const std::lock_guard lock(h->mutex);
      for (const auto* all : {&h->lost, &h->strangers})
        for (const std::string& one : *all)
          if (one.find(text) != std::string::npos) return true;
    }
    return false;
  };
  CHECK(comes([&] { return any(caller); }));
  CHECK(comes([&] { return any(answerer); }));
  for (const auto& h : job.heard) CHECK(h->chunks.load() + h->credits.load() == 0);
}

TEST_CASE("with TLS a byte that is changed on its way loses the process that it came from, with the reason") {
  std::vector<std::unique_ptr<passages>> between_them;
  std::vector<std::vector<std::byte>> kept;
  meshes_of_test job{between::tls, 2, usual_silence, 2, {}, [&](const std::string& door) {
                       between_them.push_back(std::make_unique<passages>(door, 400'000));
                       return between_them.back()->address();
                     }};
  for (std::uint32_t i = 0; i < 40; ++i) {
    kept.push_back(payload(50'000, i));
    chunk c = some_chunk(kept.back(), 5, i);
    c.source = 1;
    job.each[1]->send_chunk(0, {}, c);
  }
  CHECK(comes([&] { return job.heard[0]->losses.load() == 1; }));
  CHECK(comes([&] { return job.heard[1]->losses.load() == 1; }));
  const std::lock_guard lock(job.heard[0]->mutex);
  CHECK(job.heard[0]->lost.at(0).find("1: what it sent is no TLS of this connection: ") == 0);
  CHECK(job.heard[0]->wrong.load() == 0);
  CHECK(job.heard[0]->chunks.load() < 40);
}

TEST_CASE("strangers at a door with TLS disturb nobody") {
  std::vector<std::vector<std::byte>> kept;  // no credits here, so nothing is given back before the meshes have gone
  meshes_of_test job{between::tls, 2};
  certificate_tests::authority strange{"another authority"};
  const auto stranger = tls_identity::load(strange.issue("stranger"));
  const socket_address door = socket_address::resolve(job.addresses[0]).front();
  std::atomic<bool> over{false};
  std::thread strangers([&] {
    std::vector<descriptor> stay;
    for (int i = 0; !over.load(); ++i) {
      descriptor s = begin_connect(door);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      tls_line line{stranger, tls_line::side::caller};
      std::byte one{};
      const std::string garbage =
          i % 4 == 0 ? "\x16\x03\x01\x02 what comes now is no hello at all" : "GET / HTTP/1.0\r\n\r\n";
      if (i % 4 == 1 || i % 4 == 2) static_cast<void>(line.receive(s.get(), {&one, 1}));
      else static_cast<void>(::send(s.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL));
      if (i % 4 == 2) {  // it shakes hands to the end
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
        static_cast<void>(line.receive(s.get(), {&one, 1}));
      }
      if (stay.size() < 100) stay.push_back(std::move(s));  // some never say anything more
    }
  });
  for (std::uint32_t i = 0; i < 100; ++i) {
    kept.push_back(payload(300'000, i));
    job.each[0]->send_chunk(1, {}, some_chunk(kept.back(), 5, i));
    chunk back = some_chunk(kept.back(), 5, i);
    back.source = 1;
    job.each[1]->send_chunk(0, {}, back);
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  for (const auto& h : job.heard) CHECK(comes([&] { return h->chunks.load() == 100; }));
  CHECK(comes([&] { return job.heard[0]->turned.load() > 3; }));
  over.store(true);
  strangers.join();
  CHECK(job.went_well());
}
