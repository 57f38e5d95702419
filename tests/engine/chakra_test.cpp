// SPDX-License-Identifier: Apache-2.0
// Chakra execution traces, ASTRA-sim's: engine/tools/replay/chakra. They are made here, byte by byte, as protobuf writes them.
#include "engine/tools/replay/chakra.hpp"

#include <algorithm>
#include <functional>
#include <random>

#include <doctest/doctest.h>

#include "engine/tools/replay/replay.hpp"
#include "memory/error.hpp"
#include "tests/engine/program.hpp"
#include "tests/seed.hpp"

namespace chakra_test {

using namespace troupe;

namespace {

// -- a writer of its own ------------------------------------------------------------------------------------------------

std::string varint(std::uint64_t value) {
  std::string made;
  for (; value >= 0x80; value >>= 7) made += static_cast<char>(value | 0x80);
  return made + static_cast<char>(value);
}
std::string field(int number, std::uint64_t value) {
  return varint(static_cast<unsigned>(number) << 3) + varint(value);
}
std::string field(int number, const std::string& bytes) {
  return varint(static_cast<unsigned>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string framed(const std::string& message) { return varint(message.size()) + message; }
std::string head(const std::string& version = "0.0.4") { return framed(field(1, version)); }

std::string int64(const std::string& name, std::int64_t value) {
  return field(10, field(1, name) + field(9, static_cast<std::uint64_t>(value)));
}
std::string int32(const std::string& name, int value) {
  return field(10, field(1, name) + field(7, static_cast<std::uint64_t>(value)));
}
std::string text(const std::string& name, const std::string& value) {
  return field(10, field(1, name) + field(29, value));
}
std::string on_device() { return field(10, field(1, std::string{"is_cpu_op"}) + field(27, 0)); }

constexpr int metadata = 1, load = 2, store = 3, compute = 4, sending = 5, receiving = 6, collective_node = 7;

std::string node(std::uint64_t id, int type, const std::string& rest) {
  return framed((id > 0 ? field(1, id) : "") + field(2, std::string{"n"}) + field(3, static_cast<std::uint64_t>(type)) +
                rest);
}
std::string coll(std::uint64_t id, int type, std::int64_t bytes, const std::string& rest = {}) {
  return node(id, collective_node, on_device() + int64("comm_type", type) + int64("comm_size", bytes) + rest);
}

std::string fixed(int number, std::uint64_t value, int bytes) {
  std::string made = varint(static_cast<unsigned>(number) << 3 | (bytes == 8 ? 1 : 5));
  for (int i = 0; i < bytes; ++i) made += static_cast<char>(value >> 8 * i);
  return made;
}
/// Each of et_def.proto's kinds of values, with a text about it; the odd ones are single, the even ones behind them are lists.
std::string attributes_of_all_types() {
  const auto one = [](const std::string& value) {
    return field(10, field(1, std::string{"a"}) + field(2, std::string{"what it is"}) + value);
  };
  std::string made;
  for (const int eight : {3, 21, 25})
    made += one(fixed(eight, 0x3ff3c083126e978d, 8)) + one(field(eight + 1, field(1, std::string(16, '\1'))));
  for (const int four : {5, 19, 23})
    made += one(fixed(four, 0x3f9e0419, 4)) + one(field(four + 1, field(1, std::string(8, '\1'))));
  for (const int number : {7, 9, 11, 13, 15, 17})
    made += one(field(number, 12345)) + one(field(number + 1, field(1, varint(12345) + varint(~std::uint64_t{0}))));
  made += one(field(27, 1)) + one(field(28, field(1, varint(1) + varint(0))));
  for (const int text : {29, 31})
    made += one(field(text, std::string{"12345"})) +
            one(field(text + 1, field(1, std::string{"a"}) + field(1, std::string{"b"})));
  return made;
}

std::vector<trace_text> named(const std::vector<std::string>& texts, const std::string& ending = "et") {
  std::vector<trace_text> files;
  for (std::size_t r = 0; r < texts.size(); ++r) files.push_back({"t." + std::to_string(r) + "." + ending, texts[r]});
  return files;
}

// -- running ------------------------------------------------------------------------------------------------------------

study_scenario scenario(const std::string& toml) {
  configuration c;
  c.add_text(toml, "chakra.toml");
  return read_study(c);
}

const std::string loggp =
    "[study]\n[study.hardware]\nlink.latency = \"500ns\"\nlink.bandwidth = \"1GB/s\"\nhost.send = \"300ns\"\n"
    "host.receive = \"200ns\"\n";

/// Every node has been performed.
replay_result performed(const std::vector<std::string>& texts, const std::string& toml,
                        const trace_reading& reading = {}) {
  replay_request how;
  how.eager_bytes = ~std::uint64_t{0};  // as the program takes it for these traces
  const application what = read_chakra(named(texts), {}, reading);
  replay_result r = run_replay(scenario(toml), std::make_shared<const application>(what), how);
  REQUIRE(r.outcome.spans.size() == texts.size());
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    REQUIRE(r.outcome.spans[rank].size() == what.ranks[rank].operations.size());
    for (const replay_span& s : r.outcome.spans[rank]) REQUIRE((s.begin >= 0 && s.end >= s.begin));
  }
  return r;
}

std::int64_t end_of(const application& a, const std::string& toml = loggp) {
  return run_replay(scenario(toml), std::make_shared<const application>(a), {}).outcome.end_ps;
}
std::int64_t end_of(const std::vector<std::string>& texts, const trace_reading& how = {},
                    const std::string& groups = {}) {
  return end_of(read_chakra(named(texts), {groups.empty() ? "" : "g.json", groups}, how));
}
std::int64_t end_of_goal(const std::string& goal) { return end_of(read_goal({{"t.goal", goal}})); }

std::string why_refused(const std::vector<trace_text>& files, const std::string& groups = {}) {
  try {
    static_cast<void>(end_of(read_chakra(files, {groups.empty() ? "" : "g.json", groups}, {})));
  } catch (const error& why) {
    CHECK(why.code_value() == errc::bad_config);
    return why.what();
  }
  return "accepted";
}
void refused(const std::vector<std::string>& texts, const std::vector<std::string>& words) {
  const std::string why = why_refused(named(texts));
  for (const std::string& w : words) CHECK_MESSAGE(why.find(w) != std::string::npos, why);
}

}  // namespace

TEST_CASE("chakra: ASTRA-sim's microbenchmarks are the collectives that they say") {
  // As its generators make them: a file a rank, one node in each, whose id goes on from file to file. comm_size is what a rank puts in.
  struct one {
    int type;
    const char* goal;
    int steps;       ///< of the ring; all_to_all: of pairwise
    bool in_blocks;  ///< a step carries a rank's block of the MiB; else all of it
  };
  for (const int ranks : {4, 8, 16})
    for (const auto& [type, name, steps, in_blocks] :
         {one{0, "all_reduce 262144 f32 sum", 2 * (ranks - 1), true}, one{2, "all_gather 262144 f32", ranks - 1, false},
          one{6, "all_to_all", ranks - 1, true}, one{7, "reduce_scatter", ranks - 1, true},
          one{5, "broadcast 262144 f32", 0, false}, one{1, "reduce 262144 f32 sum", 0, false},
          one{9, "barrier", 0, false}}) {
      const std::string block = " " + std::to_string(262144 / ranks) + " f32";
      const std::string goal = type == 6 ? name + block : type == 7 ? name + block + " sum" : name;
      INFO(goal << " on " << ranks);
      std::vector<std::string> files;
      std::string text = "num_ranks " + std::to_string(ranks) + "\n";
      for (int r = 0; r < ranks; ++r) {
        files.push_back(head() + coll(static_cast<std::uint64_t>(r), type, 1 << 20));
        text += "rank " + std::to_string(r) + " {\ncoll " + goal + "\n}\n";
      }
      const std::int64_t end = end_of(files);
      CHECK(end > 0);
      CHECK(end == end_of_goal(text));
      if (steps == 0) continue;
      // On ports without other costs a ring's step takes 1 us and a nanosecond a byte, and so does one of pairwise.
      const std::string by = "[study]\nslices = 1\nchoreography = \"" + std::string{type == 6 ? "pairwise" : "ring"} +
                             "\"\n[study.hardware]\nlink.latency = \"500ns\"\nlink.bandwidth = \"1GB/s\"\n";
      const replay_result whole = performed(files, by);
      CHECK(whole.outcome.end_ps == std::int64_t{1000} * steps * (1000 + (1 << 20) / (in_blocks ? ranks : 1)));
      CHECK(whole.outcome.payload_bytes == static_cast<std::uint64_t>(ranks * steps) *
                                               static_cast<std::uint64_t>((1 << 20) / (in_blocks ? ranks : 1)));
    }
}

TEST_CASE("chakra: ASTRA-sim's collective of one's own, made of sends and receives, takes what LogGP says") {
  // A ring all-reduce of 1 MiB by 8 ranks as MSCCLang says it, in one chain a rank: a block is sent; seven times one comes, is added up for 7 us,
  // and sent on; six times one comes and is sent on; a last one comes. 0.0.4's metadata may carry attributes, such as the whole program's text.
  constexpr int ranks = 8;
  const std::string metadata_of =
      framed(field(2, field(1, std::string{"schema"}) + field(29, std::string{"1.0.2"})) +
             field(2, field(1, std::string{"input_file"}) + field(29, std::string(26'000, '<'))));
  std::vector<std::string> files;
  for (int r = 0; r < ranks; ++r) {
    std::string file = metadata_of;
    std::uint64_t id = 0;
    const auto behind = [&] { return id > 0 ? field(5, varint(id - 1)) : std::string{}; };
    const auto message = [&](int type, const char* peer, int of) {
      file += node(id, type,
                   behind() + int64("comm_type", type) + int64("comm_size", (1 << 20) / ranks) + int32(peer, of) +
                       int32("comm_tag", 0));
      ++id;
    };
    message(sending, "comm_dst", (r + 1) % ranks);
    for (int step = 0; step < 2 * (ranks - 1); ++step) {
      message(receiving, "comm_src", (r + ranks - 1) % ranks);
      if (step < ranks - 1) file += node(id, compute, behind() + field(7, 7)), ++id;
      if (step + 1 < 2 * (ranks - 1)) message(sending, "comm_dst", (r + 1) % ranks);
    }
    CHECK(id == 35);
    files.push_back(file);
  }
  const replay_result whole = performed(files, loggp);
  CHECK(whole.outcome.messages == 14 * ranks);
  CHECK(whole.outcome.end_ps == std::int64_t{1000} * (14 * (300 + 1000 + (1 << 20) / ranks + 200) + 7 * 7000));
  for (const replay_times& t : whole.outcome.ranks) {
    CHECK(t.end == whole.outcome.end_ps);
    CHECK(t.compute == 7 * 7'000'000);
  }
}

TEST_CASE("chakra: the traces of Chakra's generator are performed") {
  // One node or two a rank, on 64 ranks; 5 us, 1 KiB of memory, collectives of 64 KiB. Ids go on from file to file and from trace to trace.
  constexpr int ranks = 64;
  std::uint64_t id = 0;
  const auto files = [&](const std::function<std::string()>& nodes) {
    std::vector<std::string> made;
    for (int r = 0; r < ranks; ++r) made.push_back(head("1.0.0") + nodes());
    return made;
  };
  const auto us = [](const replay_result& r) { return static_cast<double>(r.outcome.end_ps) / 1e6; };
  const std::string micros5 = on_device() + field(7, 5);

  // A node with an attribute of every type there is, single and in lists, and what people write beside them.
  CHECK(us(performed(files([&] { return node(id++, metadata, attributes_of_all_types()); }), loggp)) == 0);
  for (const int access : {load, store}) {
    const auto accesses = files([&] {
      return node(id++, access,
                  on_device() + field(10, field(1, std::string{"tensor_size"}) + field(13, std::uint64_t{1024})));
    });
    CHECK(us(performed(accesses, loggp, {0, 1e9, {}})) == 1.024);
    CHECK(why_refused(named(accesses)).find("--memory-rate") != std::string::npos);
  }
  CHECK(us(performed(files([&] { return node(id++, compute, micros5); }), loggp)) == 5);
  const auto two = [&](bool dependent) {
    const std::uint64_t first = id;
    id += 2;
    return node(first, compute, micros5) +
           node(first + 1, compute, micros5 + (dependent ? field(5, varint(first)) : std::string{}));
  };
  for (const bool dependent : {false, true}) CHECK(us(performed(files([&] { return two(dependent); }), loggp)) == 10);
  for (const auto& each : {std::pair{0, "all_reduce 16384 f32 sum"},
                           {6, "all_to_all 256 f32"},
                           {2, "all_gather 16384 f32"},
                           {7, "reduce_scatter 256 f32 sum"},
                           {5, "broadcast 16384 f32"},
                           {9, "barrier"}}) {
    const int type = each.first;
    const std::string goal = each.second;
    INFO(goal);
    std::string text = "num_ranks 64\n", after = text;
    for (int r = 0; r < ranks; ++r) {
      const std::string begin = "rank " + std::to_string(r) + " {\n";
      text += begin + "coll " + goal + "\n}\n";
      after += begin + "a: calc 5000\nb: coll " + goal + "\nc: calc 5000\nb requires a\nc requires b\n}\n";
    }
    const int bytes = type == 9 ? 0 : 65536;
    const replay_result alone = performed(files([&] { return coll(id++, type, bytes); }), loggp);
    CHECK(alone.outcome.end_ps == end_of_goal(text));
    // One between two computations, in a chain; and one beside a computation that is over long before.
    const replay_result chain = performed(files([&] {
                                            const std::uint64_t a = id, b = id + 1, c = id + 2;
                                            id += 3;
                                            return node(a, compute, micros5) +
                                                   coll(b, type, bytes, field(5, varint(a))) +
                                                   node(c, compute, micros5 + field(5, varint(b)));
                                          }),
                                          loggp);
    CHECK(chain.outcome.end_ps == end_of_goal(after));
    CHECK(us(chain) >= us(alone) + 5);
    const replay_result beside = performed(files([&] {
                                             const std::uint64_t first = id;
                                             id += 2;
                                             return node(first, compute, micros5) + coll(first + 1, type, bytes);
                                           }),
                                           loggp);
    CHECK(beside.outcome.end_ps == std::max<std::int64_t>(alone.outcome.end_ps, 5'000'000));
  }
  // Its sends and receives say no peer, and so cannot be performed by anybody.
  for (const int type : {sending, receiving})
    CHECK(why_refused(named(files([&] {
            return node(id++, type,
                        on_device() + field(10, field(1, std::string{"tensor_size"}) + field(13, std::uint64_t{1024})));
          }))).find("t.0.et") != std::string::npos);
}

TEST_CASE("chakra: computations, messages, communicators and dependencies") {
  // Two computations of 50 and 70 us on one unit follow one another; one of the processor's goes beside them.
  const std::string micros50 = field(7, 50), micros70 = field(7, 70);
  const auto us = [](std::int64_t ps) { return static_cast<double>(ps) / 1e6; };
  CHECK(us(end_of({head() + node(0, compute, micros50) + node(1, compute, micros70)})) == 120);
  CHECK(us(end_of({head() + node(0, compute, micros50) +
                   node(1, compute, micros70 + field(10, field(1, std::string{"is_cpu_op"}) + field(27, 1)))})) == 70);
  // … unless it depends on the other, by data (packed) or by control (one by one).
  for (const std::string& needs : {field(5, varint(0)), field(4, 0), field(5, varint(0)) + field(4, varint(0))})
    CHECK(us(end_of({head() + node(0, compute, micros50) +
                     node(1, compute,
                          micros70 + needs + field(10, field(1, std::string{"is_cpu_op"}) + field(27, 1)))})) == 120);
  // A node may come before what it depends on.
  CHECK(us(end_of({head() + node(7, compute, micros50 + field(5, varint(3))) + node(3, metadata, "")})) == 50);
  // o + L + n G + o, as the same in GOAL.
  CHECK(end_of({head() + node(0, sending, int64("comm_size", 100) + int32("comm_dst", 1) + int32("comm_tag", 7)),
                head() + node(0, receiving, int64("comm_size", 100) + int32("comm_src", 0) + int32("comm_tag", 7))}) ==
        (300 + 1000 + 100 + 200) * 1000);
  // Operations and bytes at given rates: whatever takes longer.
  const std::string flops =
      int64("num_ops", 2'000'000'000) + field(10, field(1, std::string{"tensor_size"}) + field(11, 3'000'000));
  CHECK(us(end_of({head() + node(0, compute, flops)}, {1e12, 0, {}})) == 2000);
  CHECK(us(end_of({head() + node(0, compute, flops)}, {1e12, 1e9, {}})) == 3000);
  CHECK(us(end_of({head() + node(0, load, field(10, field(1, std::string{"tensor_size"}) + field(11, 1000)))},
                  {0, 1e9, {}})) == 1);
  // Two communicators at once; ranks said in a file, or by a node as PyTorch's traces have it.
  const auto in_group = [](int r) { return text("pg_name", r % 2 == 0 ? "1" : "2"); };
  const std::string groups = R"({"1": [0, 2], "2": [1, 3]})";
  const std::string init = framed(
      field(2, std::string{"## process_group:init ##"}) + field(1, 99) + field(3, metadata) +
      field(
          8,
          field(
              1,
              std::string{
                  R"(['[{"pg_name": "1", "ranks": [0, 2]}, {"pg_name": "2", "ranks": [1, 3]}, {"pg_name": "0", "ranks": []}]'])"})));
  std::vector<std::string> by_file, by_node;
  std::string goal = "num_ranks 4\ncomm a { 0 2 }\ncomm b { 1 3 }\n";
  for (int r = 0; r < 4; ++r) {
    by_file.push_back(head() + coll(0, 0, 4096, in_group(r)) +
                      coll(1, 0, 4096, field(5, varint(0)) + text("pg_name", "0")));
    by_node.push_back(head() + init + coll(0, 0, 4096, in_group(r)) +
                      coll(1, 0, 4096, field(5, varint(0)) + text("pg_name", "0")));
    goal += "rank " + std::to_string(r) + " {\na: coll all_reduce 1024 f32 sum comm " + (r % 2 == 0 ? "a" : "b") +
            "\nb: coll all_reduce 1024 f32 sum\nb requires a\n}\n";
  }
  CHECK(end_of(by_file, {}, groups) == end_of_goal(goal));
  CHECK(end_of(by_node) == end_of_goal(goal));
}

TEST_CASE("chakra: the JSON form says the same") {
  // As protobuf writes it: names in camel case, numbers of 64 bits as texts, nothing between the objects.
  const auto json = [](int r) {
    return std::string{R"({"version": "1.0.0"})"} +
           R"({"name": "a", "type": "COMP_NODE", "durationMicros": "50", "attr": [{"name": "is_cpu_op", "boolVal": false}]})" +
           R"({"id": "1", "type": "COMM_COLL_NODE", "dataDeps": ["0"], "attr": [{"name": "comm_type", "int64Val": "0"}, )" +
           R"({"name": "comm_size", "int64Val": "4096"}, {"name": "pg_name", "stringVal": ")" + (r < 2 ? "0" : "") +
           "\"}]}\n";
  };
  std::vector<std::string> texts, binary;
  for (int r = 0; r < 3; ++r) {
    texts.push_back(json(r));
    binary.push_back(head() + node(0, compute, field(7, 50)) + coll(1, 0, 4096, field(5, varint(0))));
  }
  CHECK(end_of(read_chakra(named(texts, "json"), {}, {})) == end_of(binary));
  // By the schema's own names, as people write it.
  CHECK(end_of(read_chakra(named({R"({} {"id": 4, "type": 4, "duration_micros": 9, "ctrl_deps": []})"}, "json"), {},
                           {})) == 9'000'000);
  CHECK(why_refused(named({R"({}{"id": 1,)"}, "json")).find("object 1 is no JSON") != std::string::npos);
  CHECK(why_refused(named({"{}[]"}, "json")).find("no JSON object") != std::string::npos);
  CHECK(why_refused(named({""}, "json")).find("empty") != std::string::npos);
}

TEST_CASE("chakra: what is wrong is said, with file and node") {
  refused({""}, {"t.0.et", "empty"});
  refused({head()}, {"t.0.et", "no node"});
  refused({"\x1f\x8b\x08"}, {"gunzip"});
  refused({head() + framed("\x0f")}, {"no Node of Chakra's"});
  refused({head() + varint(100) + "abc"}, {"100 bytes", "cut off"});
  refused({head() + node(5, compute, "") + node(5, compute, "")}, {"node 5 (n)", "another node"});
  refused({head() + node(5, compute, field(5, varint(9)))}, {"node 5 depends on node 9", "not in the file"});
  refused({head() + node(5, compute, field(5, varint(5)))}, {"node 5 depends on itself"});
  refused({head() + node(1, compute, field(5, varint(2))) + node(2, compute, field(5, varint(1)))}, {"cannot go on"});
  refused({head() + node(5, 8, "")}, {"its type is 8"});
  refused({head() + node(5, compute, int64("num_ops", 7))}, {"7 operations", "--flops"});
  refused({head() + node(5, load, int64("tensor_size", 7))}, {"7 bytes", "--memory-rate"});
  refused({head() + node(5, compute, int64("num_ops", -7))}, {"num_ops is -7"});
  refused({head() + node(5, compute, field(7, ~std::uint64_t{0}))}, {"takes more than"});
  refused({head() + coll(5, 10, 8)}, {"comm_type is 10"});
  refused({head() + node(5, collective_node, int64("comm_type", 0))}, {"no comm_size"});
  refused({head() + coll(5, 0, -8)}, {"comm_size is -8"});
  refused({head() + coll(5, 0, 8, text("pg_name", "3"))}, {"communicator 3", "--groups"});
  refused({head() + coll(5, 5, 8, int32("root", 1))}, {"no root 1"});
  refused({head() +
           coll(5, 0, 8,
                field(10, field(1, std::string{"involved_dim"}) + field(28, field(1, std::string{"\x01\x00", 2}))))},
          {"involved_dim"});
  refused({head() + coll(5, 0, 8, text("data_type", "x"))}, {"data_type"});
  refused({head() + coll(5, 0, 8), head()}, {"rank 0 calls 1 collective", "rank 1 0"});
  refused({head() + coll(5, 0, 8), head() + coll(6, 2, 8)}, {"t.1.et:6", "must call alike"});
  refused({head() + node(1, sending, int64("comm_size", 8))}, {"no comm_dst"});
  refused({head() + node(1, sending, int64("comm_size", 8) + int32("comm_dst", 1))}, {"comm_dst is 1", "0 to 0"});
  refused({head() + node(1, sending, int64("comm_size", 8) + int32("comm_dst", 0) + int32("comm_src", 1)), head()},
          {"file is rank 0's"});
  CHECK(why_refused({{"t.et", head()}}).find("says its rank") != std::string::npos);
  CHECK(why_refused({{"t.1.et", head()}}).find("it is rank 1's, but there is 1 file") != std::string::npos);
  CHECK(why_refused({{"t.0.et", head()}, {"u.0.et", head()}}).find("t.0.et is that rank's") != std::string::npos);
  CHECK(why_refused(named({head()}), "[1]").find("no JSON object") != std::string::npos);
  CHECK(why_refused(named({head()}), R"({"1": [0, 1]})").find("has the rank 1; ranks are 0 to 0") != std::string::npos);
  CHECK(why_refused(named({head()}), R"({"1": [0, 0]})").find("twice") != std::string::npos);
  CHECK(why_refused(named({head()}), R"({"1": 3})").find("no list") != std::string::npos);
}

TEST_CASE("chakra: an application that is written is read as the same") {
  std::string goal = "num_ranks 4\ncomm even { 0 2 }\n";
  for (int r = 0; r < 4; ++r) {
    const std::string next = std::to_string((r + 1) % 4), last = std::to_string((r + 3) % 4);
    goal += "rank " + std::to_string(r) + " {\na: calc 50000 cpu 0\nb: send 4096b to " + next +
            " tag 3 cpu 2\nb requires a\nc: recv 4096b from " + last +
            " tag 3 cpu 2\nd: coll reduce_scatter 100 bf16 max\nd requires c\ne: coll broadcast 77 i64 root 1\ne "
            "requires d\n";
    if (r % 2 == 0) goal += "f: coll all_to_all 9 f64 comm even\nf requires e\n";
    goal += "}\n";
  }
  const application whole = read_goal({{"t.goal", goal}});
  const application back = read_chakra(named(write_chakra(whole)), {"g.json", chakra_groups(whole)}, {});
  CHECK(end_of(back) == end_of(whole));
  CHECK(back.collectives.size() == whole.collectives.size());
  CHECK(back.collectives[0].what.type == datatype::bf16);
  CHECK(back.collectives[0].what.reduction.kind == op_kind::max);
  for (const char* line : {"coll all_gather_v 1 f32", "coll scan 4 f32 sum", "recv 8b from -1 tag 2",
                           "a: calc 1\nb: calc 1\nb irequires a"})
    try {
      static_cast<void>(write_chakra(read_goal({{"t.goal", std::string{"num_ranks 1\nrank 0 {\n"} + line + "\n}\n"}})));
      FAIL("written: " << line);
    } catch (const error& why) {
      CHECK_MESSAGE(why.code_value() == errc::unsupported, why.what());
    }
}

TEST_CASE("chakra: mutated traces are performed or refused") {
  auto random = std::mt19937_64{seed()};
  std::vector<std::string> whole;
  for (int r = 0; r < 2; ++r)
    whole.push_back(
        head() + node(0, compute, field(7, 3)) + coll(1, 0, 4096, field(5, varint(0))) +
        node(2, r == 0 ? sending : receiving,
             int64("comm_size", 64) + int32(r == 0 ? "comm_dst" : "comm_src", 1 - r) + field(4, varint(1))) +
        coll(3, 6, 512, text("pg_name", "1")) +
        node(4, metadata, field(8, field(1, std::string{R"(['[{"pg_name": "1", "ranks": [0, 1]}]'])"}))));
  int performed = 0;
  for (int i = 0; i < 4000; ++i) {
    auto files = whole;
    for (int change = static_cast<int>(random() % 3); change >= 0; --change) {
      std::string& one = files[random() % files.size()];
      if (one.empty()) continue;
      const std::size_t at = random() % one.size(), length = random() % 12;
      switch (random() % 4) {
        case 0: one[at] = static_cast<char>(random()); break;
        case 1: one.erase(at, length); break;
        case 2: one[at] = static_cast<char>(one[at] ^ 1 << random() % 8); break;
        default: one.insert(at, one.substr(random() % one.size(), length)); break;
      }
    }
    try {
      const application made = read_chakra(named(files), {"g.json", R"({"1": [0, 1]})"}, {1e9, 1e9, {}});
      if (performed > 100) continue;
      static_cast<void>(run_replay(scenario("[study]\nchoreography = \"one_shot\"\n"),
                                   std::make_shared<const application>(made), {}));
      ++performed;
    } catch (const error& why) {
      CHECK_MESSAGE((why.code_value() == errc::bad_config || why.code_value() == errc::unsupported ||
                     why.code_value() == errc::size_overflow),
                    why.what());
    }
  }
  CHECK(performed > 0);
}

TEST_CASE("chakra: the program replays files, and writes them") {
  using troupe_program::folder, troupe_program::run;
  const std::string goal = troupe_program::write(
      "c.goal", "num_ranks 2\ncomm one { 1 }\nrank 0 {\na: calc 5000\n}\nrank 1 {\na: calc 7000\nb: coll "
                "all_reduce 4 f32 sum comm one\n}\n");
  const std::string name = (folder() / "c").string();
  CHECK(run("replay " + goal + " --chakra " + name).code == 0);
  const auto done = run("replay " + name + ".0.et " + name + ".1.et --groups " + name + ".groups.json");
  CHECK_MESSAGE(done.code == 0, done.err);
  CHECK(done.out.find("makespan 7.00 us") != std::string::npos);
  CHECK(run("replay " + goal + " " + name + ".0.et").err.find("files of one form") != std::string::npos);
  CHECK(run("replay " + name + ".0.et --flops much").err.find("no rate") != std::string::npos);
}

}  // namespace chakra_test
