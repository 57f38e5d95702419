// SPDX-License-Identifier: Apache-2.0
// A collective that was refused on one rank alone (a null buffer, a bad root; later also a choreography that there is not) left the
// others waiting for it for ever.

#include <doctest/doctest.h>

#include <troupe.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace peer_refused_test {

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct seen {
  errc code = errc::ok;
  std::string text;
};

seen error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const error& e) {
    return {e.code_value(), e.what()};
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// What the rank that was refused hears, and what the others hear.
void check_all(const std::vector<seen>& all, std::size_t refuser, errc code, const std::string& reason) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    CAPTURE(r);
    CAPTURE(all[r].text);
    CHECK(all[r].code == (r == refuser ? code : errc::peer_refused));
    CHECK(contains(all[r].text, "rank " + std::to_string(refuser)));
    CHECK(contains(all[r].text, reason));
  }
}

call_options over(const std::string& protocol) {
  call_options o;
  o.protocol = *parse_message_protocol(protocol);
  return o;
}

}  // namespace

TEST_CASE("blocking: a null buffer on one rank is an error on all that names it, and the next call succeeds") {
  for (const std::string protocol : {"ll128", "direct", "simple", ""}) {
    CAPTURE(protocol);
    engine e;
    std::vector<seen> all(3);
    e.run(3, [&](communicator& comm) {
      std::vector<float> in(8, 1), out(8);
      const bool wrong = comm.rank() == 1;
      all[static_cast<std::size_t>(comm.rank())] = error_of([&] {
        comm.all_reduce(wrong ? nullptr : in.data(), out.data(), in.size(), datatype::f32, sum, over(protocol));
      });
      comm.all_reduce(in, out, sum, over(protocol));
      CHECK(out[0] == 3);
    });
    check_all(all, 1, errc::null_buffer, "input is null but has 8 elements");
  }
}

TEST_CASE("blocking: whatever was refused, and whatever the others call") {
  engine_options strict;
  strict.agreement = agreement_time::strict;  // a refusal that rooted calls hear of too late ends the communicator
  engine e{strict};
  const auto refused = [&](errc code, const std::string& reason, auto wrong, auto right) {
    std::vector<seen> all(3);
    e.run(3, [&](communicator& comm) {
      std::vector<float> a(12), b(12);
      all[static_cast<std::size_t>(comm.rank())] = error_of([&] {
        if (comm.rank() == 2) wrong(comm, a, b);
        else right(comm, a, b);
      });
      comm.barrier();
    });
    check_all(all, 2, code, reason);
  };
  using data = std::vector<float>;
  const auto broadcast = [](communicator& c, data& a, data&) { c.broadcast(a, 0); };
  const auto gather = [](communicator& c, data& a, data& b) { c.gather(a.data(), b.data(), 4, datatype::f32, 0); };
  const auto v_form = [](communicator& c, data& a, data& b) { c.all_gather_v(a, b, block_list{{4, 4, 4}}); };
  refused(
      errc::bad_root, "root 3 is not a rank", [](communicator& c, data& a, data&) { c.broadcast(a, 3); }, broadcast);
  refused(
      errc::null_buffer, "null", [](communicator& c, data&, data&) { c.gather(nullptr, nullptr, 4, datatype::f32, 0); },
      gather);
  refused(
      errc::invalid_argument, "one count per rank",
      [](communicator& c, data& a, data& b) {
        c.all_gather_v(a, b, block_list{{4, 4}});
      },
      v_form);
  refused(
      errc::invalid_argument, "same size",
      [](communicator& c, data& a, data& b) { c.all_reduce(a, std::span{b}.first(3)); }, broadcast);
  refused(
      errc::size_overflow, "address space",
      [](communicator& c, data& a, data& b) {
        c.all_reduce(a.data(), b.data(), std::numeric_limits<std::size_t>::max(), datatype::f32);
      },
      gather);
}

TEST_CASE("what no rank can do, asked by one rank alone: the others hear of it, whichever form each uses") {
  engine e;
  for (const std::string form : {"blocking", "asynchronous", "group", "split", "split in a group"}) {
    CAPTURE(form);
    std::vector<seen> all(3);
    e.run(3, [&](communicator& comm) {
      std::vector<float> a(12, 1), b(12);
      communicator part;
      call_options o;
      if (comm.rank() == 1) o.choreography = "rign";
      group together;
      const std::function<void()> call = [&] {
        if (form == "blocking") comm.all_reduce(a, b, sum, o);
        else if (form == "asynchronous") comm.all_reduce_async(a, b, sum, o).wait();
        else if (form == "group") comm.all_reduce_async(together, a, b, sum, o), together.wait();
        else if (form == "split") part = comm.split(0, 0, o);
        else comm.split_async(together, part, 0, 0, o), together.wait();
      };
      all[static_cast<std::size_t>(comm.rank())] = error_of(call);
      if (form.ends_with("group")) CHECK((together.size() == 1) == (comm.rank() == 1));
      static_cast<void>(error_of([&] { together.wait(); }));
      comm.all_reduce(a, b);
      CHECK(b[0] == 3);
    });
    check_all(all, 1, errc::unsupported, "there is no choreography rign");
  }
}

TEST_CASE("what no rank can do, asked by a rank that waits for it: the others hear of it without engine::run, too") {
  engine e;
  auto comms = e.communicators(3);
  std::vector<float> a(8, 1), b(8, 1), c(8, 1);
  call_options o;
  o.choreography = "rign";
  std::vector<seen> all(3);
  request one = comms[1].all_reduce_async(b), two = comms[2].all_reduce_async(c);
  all[0] = error_of([&] { comms[0].all_reduce(a, o); });
  all[1] = error_of([&] { one.wait(); });
  all[2] = error_of([&] { two.wait(); });
  check_all(all, 0, errc::unsupported, "there is no choreography rign");
  // Each rank that asks for it is refused.
  for (communicator& comm : comms) CHECK(error_of([&] { comm.all_reduce(a, o); }).code == errc::unsupported);
  group next;
  comms[0].all_reduce_async(next, a), comms[1].all_reduce_async(next, b), comms[2].all_reduce_async(next, c);
  next.wait();
  CHECK(a[0] == 3);
}

TEST_CASE("what no rank can do is no call of who may drive all ranks: that thread may stop at the first") {
  engine e;
  auto comms = e.communicators(3);
  std::vector<float> a(12), b(12);
  call_options o;
  o.choreography = "rign";
  communicator part;
  CHECK(error_of([&] { static_cast<void>(comms[0].all_reduce_async(a, b, sum, o)); }).code == errc::unsupported);
  CHECK(error_of([&] { static_cast<void>(comms[0].all_reduce_async(a, b, band)); }).code == errc::unsupported_type);
  CHECK(error_of([&] { static_cast<void>(comms[0].split_async(part, 0, 0, o)); }).code == errc::unsupported);
  group all;
  CHECK(error_of([&] { comms[0].all_reduce_async(all, a, b, band); }).code == errc::unsupported_type);
  for (communicator& c : comms) c.barrier_async(all);
  CHECK_NOTHROW(all.wait());
}

TEST_CASE("asynchronous: the refused call throws at once, whoever calls first") {
  for (const bool refused_first : {true, false}) {
    CAPTURE(refused_first);
    engine e;
    auto comms = e.communicators(3);
    std::vector<float> a(8, 1), b(8, 1), c(8, 1);
    float* const null = nullptr;
    std::vector<seen> all(3);
    const auto refuse = [&] {
      all[0] = error_of([&] { static_cast<void>(comms[0].all_reduce_async(null, null, 8, datatype::f32)); });
    };
    if (refused_first) refuse();
    request one = comms[1].all_reduce_async(b), two = comms[2].all_reduce_async(c);
    if (!refused_first) refuse();
    // Behind it, and in order.
    group next;
    comms[0].all_reduce_async(next, a), comms[1].all_reduce_async(next, b), comms[2].all_reduce_async(next, c);
    all[1] = error_of([&] { one.wait(); });
    all[2] = error_of([&] { two.wait(); });
    check_all(all, 0, errc::null_buffer, "is null but has 8 elements");
    next.wait();
    CHECK(a[0] == 3);
  }
}

TEST_CASE("in a group the refused call keeps its place") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(8, 1), b(8, 1), x(8, 1), y(8, 1);
  float* const null = nullptr;
  group mine;
  std::vector<seen> all(2);
  request before = comms[0].all_reduce_async(mine, a);
  all[0] = error_of([&] { comms[0].all_reduce_async(mine, null, null, 8, datatype::f32); });
  request after = comms[0].all_reduce_async(mine, x);
  group others;
  request first = comms[1].all_reduce_async(others, b), second = comms[1].barrier_async(others),
          third = comms[1].all_reduce_async(others, y);
  others.launch();
  // The group that has the refused call gives the same error to a caller that went on.
  const seen told = error_of([&] { mine.wait(); });
  CHECK(told.code == errc::null_buffer);
  CHECK(contains(told.text, "rank 0"));
  before.wait(), after.wait(), first.wait(), third.wait();
  all[1] = error_of([&] { second.wait(); });
  check_all(all, 0, errc::null_buffer, "is null but has 8 elements");
  CHECK(a[0] == 2);
  CHECK(y[0] == 2);
}

TEST_CASE("persistent: a second start of what is still under way is told to the others; a refused init is no call") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(8, 1), b(8, 1);
  float* const null = nullptr;
  CHECK(error_of([&] { static_cast<void>(comms[0].all_reduce_init(null, null, 8, datatype::f32)); }).code ==
        errc::null_buffer);
  persistent sum_of = comms[0].all_reduce_init(a);
  request under_way = sum_of.start();
  std::vector<seen> all(2);
  all[0] = error_of([&] { static_cast<void>(sum_of.start()); });
  request first = comms[1].all_reduce_async(b), second = comms[1].all_reduce_async(b);
  all[1] = error_of([&] { second.wait(); });
  first.wait(), under_way.wait();
  check_all(all, 0, errc::invalid_argument, "still under way");
  CHECK(a[0] == 2);
  request third = comms[1].barrier_async();
  comms[0].barrier();
  third.wait();
}

TEST_CASE("who was refused while the others time out gives them the reason; a refusal is no reason to hang") {
  engine e;
  auto comms = e.communicators(2);
  std::vector<float> a(8, 1);
  float* const null = nullptr;
  // Refused again and again, while nobody else calls: then the other calls, and hears of each.
  for (int i = 0; i < 300; ++i)
    CHECK(error_of([&] { comms[0].all_reduce(null, null, 8, datatype::f32); }).code == errc::null_buffer);
  for (int i = 0; i < 300; ++i) {
    const seen told = error_of([&] { comms[1].all_reduce(a); });
    CHECK(told.code == errc::peer_refused);
  }
  request last = comms[1].all_reduce_async(a);
  std::vector<float> b(8, 1);
  comms[0].all_reduce(b);
  last.wait();
  CHECK(a[0] == 2);
}

TEST_CASE("both refuse the same call") {
  engine e;
  std::vector<seen> all(4);
  e.run(4, [&](communicator& comm) {
    std::vector<float> a(8);
    all[static_cast<std::size_t>(comm.rank())] = error_of([&] { comm.broadcast(a, 9); });
    comm.barrier();
  });
  for (const seen& one : all) CHECK(one.code == errc::bad_root);
}

}  // namespace peer_refused_test
