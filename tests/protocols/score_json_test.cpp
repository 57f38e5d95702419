// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>

#include "memory/error.hpp"
#include "protocols/choreographies/choreography.hpp"
#include "protocols/lower/lowering.hpp"
#include "protocols/score/score_builder.hpp"
#include "tests/seed.hpp"

using namespace troupe;
using namespace troupe::notation;

namespace {

/// Two ranks, every kind of key.
const std::string good = R"json({
 "troupe_score": 1,
 "choreography": "by hand",
 "collective": "all_reduce",
 "ranks": 2,
 "parts": 2,
 "l2": [[0, 1]],
 "players": [
  {"scratch": [[0, 0], [0, 1]], "lanes": [[
   {"do": "send", "source": "input[0..2)", "to": 1},
   {"do": "recv", "from": 1, "target": "scratch[0..2)"},
   {"do": "copy", "source": "input[0..2)", "target": "output[0..2)"},
   {"do": "reduce", "source": "scratch[0..2)", "target": "output[0..2)", "swapped": true}],
   [{"do": "wait", "after": [0, 1]}]]},
  {"l0": [[0, 1]], "lanes": [[
   {"do": "send", "source": "input[0..2)", "to": 0},
   {"do": "copy", "source": "input[0..2)", "target": "output[0..2)"},
   {"do": "recv_reduce", "from": 0, "target": "output[0..2)", "fan": 3},
   {"do": "sync"}]]}
 ]
})json";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string message_of(const std::string& text) {
  try {
    from_json(text, "mine.json");
  } catch (const error& e) {
    CHECK(e.code_value() == errc::bad_score);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a score written by hand is read") {
  const score s = from_json(good);
  CHECK(s.choreography == "by hand");
  CHECK(s.root == 0);
  CHECK(s.uniform);
  CHECK_FALSE(s.in_place);
  CHECK(s.parts == 2);
  CHECK(s.l2 == std::vector<extent>{{0, 1}});
  REQUIRE(s.players.size() == 2);
  const step& fold = s.players[0].lanes[0][3];
  CHECK(fold.kind == step_kind::reduce);
  CHECK(fold.swapped);
  CHECK(fold.source == place{buffer_kind::scratch, self, 0, 2});
  CHECK(fold.target == place{buffer_kind::output, self, 0, 2});
  CHECK(s.players[0].lanes[1][0].after == step_ref{0, 1});
  CHECK(s.players[1].lanes[0][2].fan == 3);
  CHECK(s.players[1].lanes[0][3].kind == step_kind::sync);
  CHECK(from_json(to_json(s)) == s);
}

TEST_CASE("every built-in score survives JSON, as written and as lowered") {
  int seen = 0;
  for (const choreography* c : all_choreographies())
    for (const collective what : c->collectives)
      for (const int ranks : {1, 2, 3, 6})
        for (const bool in_place : {false, true}) {
          const setup on = flat_setup(what, ranks, has_root(what) ? ranks - 1 : 0, in_place, ranks != 3);
          if (!refusal(*c, on).empty()) continue;
          const score written = write_score(*c, on);
          const score low = fold_in_rank_order(lower_syncs(written));
          for (const int indent : {-1, 0, 1, 4}) {
            CHECK_MESSAGE(from_json(to_json(written, indent)) == written, c->name, ' ', name(what), ' ', ranks);
            CHECK_MESSAGE(from_json(to_json(low, indent)) == low, c->name, ' ', name(what), ' ', ranks);
          }
          ++seen;
        }
  CHECK(seen > 100);
}

TEST_CASE("the text has one line a step, or one line in all") {
  const score s = from_json(good);
  const std::string text = to_json(s);
  CHECK(text.find("\n     {\"do\": \"reduce\", \"source\": \"scratch[0..2)\", \"target\": \"output[0..2)\", "
                  "\"swapped\": true}\n") != std::string::npos);
  CHECK(to_json(s, -1).find('\n') == std::string::npos);
}

TEST_CASE("other ranks' places, tokens and odd names survive") {
  score_builder b{flat_setup(collective::all_reduce, 3), "odd \"name\"\n\x01 ⊕", 1};
  b.lane(0).copy(input[0], output.of(2)[0]);
  b.lane(0).signal(1);
  b.lane(1).await(0);
  b.lane(2).called(message_name::wait_done).from(0).to(1).recv_copy_send(token);
  b.lane(2).signal(0);
  const score s = b.finish();
  const std::string text = to_json(s);
  CHECK(s.players[2].lanes[0][0].called == message_name::wait_done);
  CHECK(s.players[2].lanes[0][1].called == message_name::none);
  CHECK(text.find("\"called\": \"WaitDone\"}") != std::string::npos);
  CHECK(text.find("\"output[0]@2\"") != std::string::npos);
  CHECK(from_json(text) == s);
}

TEST_CASE("a message names the file, the place in it, what was found and what would be right") {
  struct {
    const char* from;
    const char* to;
    const char* says;
  } const cases[] = {
      {"\"recv_reduce\"", "\"recv_redcue\"",
       "mine.json: players[1].lanes[0][2].do: 'recv_redcue' is no kind of step; did you mean 'recv_reduce'?"},
      {"\"recv_reduce\"", "\"dance\"", "'dance' is no kind of step; right would be one of: send recv copy"},
      {"\"swapped\"", "\"swaped\"",
       "mine.json: players[0].lanes[0][3]: the key 'swaped' does not belong to a reduce; did you mean 'swapped'?"},
      {"\"to\": 1}", "\"to\": 1, \"called\": \"Akc\"}",
       "mine.json: players[0].lanes[0][0].called: 'Akc' is no name of a message; did you mean 'Ack'?"},
      {"\"swapped\": true", "\"called\": \"Ack\"", "the key 'called' does not belong to a reduce"},
      {"\"ranks\"", "\"rank\"", "mine.json: the key 'rank' is not known here; did you mean 'ranks'?"},
      {"\"lanes\"", "\"lane\"", "mine.json: players[0]: the key 'lane' is not known here; did you mean 'lanes'?"},
      {"\"all_reduce\"", "\"allreduce\"",
       "mine.json: collective: 'allreduce' is no collective; did you mean 'all_reduce'?"},
      {"input[0..2)", "inptu[0..2)",
       "mine.json: players[0].lanes[0][0].source: 'inptu[0..2)' is no place; right would be"},
      {"input[0..2)", "input[-1]", "'input[-1]' is no place"},
      {"input[0..2)", "input[2..1)", "'input[2..1)' is no place"},
      {"input[0..2)", "input[0..99999999999)", "is no place"},
      {"input[0..2)", "input[0]@", "is no place"},
      {"input[0..2)", "input[0]@7", "'input[0]@7' is of rank 7; the ranks are 0 to 1"},
      {"\"to\": 1", "\"to\": 2", "mine.json: players[0].lanes[0][0].to: found 2; a whole number from 0 to 1 is needed"},
      {"\"to\": 1", "\"to\": \"1\"", "found \"1\"; a whole number"},
      {"\"to\": 1", "\"to\": 1e3", "found 1000.0; a whole number"},
      {", \"to\": 1", "", "mine.json: players[0].lanes[0][0]: the key 'to' is missing"},
      {"\"to\": 1", "\"to\": 1, \"from\": 1", "the key 'from' does not belong to a send"},
      {"\"to\": 1", "\"to\": 1, \"to\": 1", "the key \"to\" is there twice"},
      {"[0, 1]}]]}", "[0, 9]}]]}", "players[0].lanes[1][0].after: lane 0 has no step 9; it has 4"},
      {"[0, 1]}]]}", "[5, 0]}]]}", "players[0].lanes[1][0].after: lane 5 is not there; this rank has 2 lanes"},
      {"[0, 1]}]]}", "7}]]}", "found 7; a step to wait for is given as [lane, step]"},
      {"\"ranks\": 2", "\"ranks\": 3", "mine.json: players: found 2 players for 3 ranks"},
      {"\"ranks\": 2", "\"ranks\": 0", "mine.json: ranks: found 0; a whole number from 1 to"},
      {"\"ranks\": 2", "\"ranks\": 18446744073709551615", "mine.json: ranks: found 18446744073709551615;"},
      {"\"ranks\": 2", "\"ranks\": 1e999", "mine.json: is not JSON: "},
      {"\"parts\": 2", "\"parts\": 1000000000", "mine.json: parts: found 1000000000; a whole number from 1 to"},
      {"\"parts\": 2", "\"parts\": 2, \"root\": 2", "mine.json: root: found 2; a whole number from 0 to 1 is needed"},
      {"\"parts\": 2", "\"parts\": 2, \"in_place\": 1", "mine.json: in_place: found 1; true or false is needed"},
      {"[[0, 0], [0, 1]]", "[[0, 0], [1, 1]]",
       "mine.json: players[0].scratch[1][0]: found 1; a whole number from 0 to 0"},
      {"[[0, 0], [0, 1]]", "[[0, 0], [0, 2]]",
       "mine.json: players[0].scratch[1][1]: found 2; a whole number from 0 to 1"},
      {"[[0, 0], [0, 1]]", "[[0, 0], 4]",
       "mine.json: players[0].scratch[1]: found 4; a cell is declared as [block, part]"},
      {"\"fan\": 3", "\"fan\": 65536", "players[1].lanes[0][2].fan: found 65536;"},
      {"\"troupe_score\": 1", "\"troupe_score\": 2",
       "mine.json: troupe_score: version 2 is not known; this program reads version 1"},
      {"\"troupe_score\": 1,", "", "mine.json: the key 'troupe_score' is missing"},
      {"\"collective\": \"all_reduce\"", "\"collective\": 5",
       "mine.json: collective: found 5; a text in quotes is needed"},
      {"\"collective\": \"all_reduce\"", "\"collective\": \"barrier\"", "mine.json: l2[0]: barrier has no blocks"},
      {"{\"do\": \"sync\"}", "[]", "players[1].lanes[0][3]: found a list of 0; a step is an object"},
      {"\"ranks\": 2,", "\"ranks\": 2", "mine.json: is not JSON: parse error at line 6"},
  };
  CHECK(message_of(good) == "no error");
  for (const auto& c : cases) {
    const std::string text = message_of(replaced(good, c.from, c.to));
    CHECK_MESSAGE(text.find(c.says) != std::string::npos, "for ", c.to, " it says: ", text);
  }
  for (const char* text : {"", "[]", "7", "null", "\"\"", "{}", "{\"troupe_score\": null}", "\xff\xfe"})
    CHECK_MESSAGE(message_of(text).find("mine.json: ") == 0, text);
}

TEST_CASE("hostile sizes are refused before anything is built from them") {
  std::string many = R"({"troupe_score": 1, "collective": "all_to_all", "ranks": 300, "parts": 1000000, "players": [)";
  for (int r = 0; r < 300; ++r) many += r == 0 ? "{\"lanes\": []}" : ", {\"lanes\": []}";
  CHECK(message_of(many + "]}").find("1000000 parts make 180000000000 cells") != std::string::npos);
  std::string lanes = "[]";
  for (int i = 0; i < 5000; ++i) lanes += ", []";
  CHECK(message_of(replaced(good, "[{\"do\": \"wait\", \"after\": [0, 1]}]", lanes))
            .find("players[0].lanes: found 5002 lanes") != std::string::npos);
  CHECK(message_of(std::string(1'000'000, '[')).find("is not JSON") != std::string::npos);
  CHECK(message_of(std::string(1'000'000, '[') + std::string(1'000'000, ']')).find("found a list of 1") !=
        std::string::npos);
  CHECK(message_of(replaced(good, "\"wait\"", '"' + std::string(100'000, 'x') + '"')).size() < 500);
}

TEST_CASE("text changed at random is read or refused, never worse") {
  const char alphabet[] = "{}[]\":,.-+@)0123456789eE \n\\uinputsdo";
  std::mt19937_64 random{seed()};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int read = 0;
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t at = below(text.size());
      const char letter = below(4) == 0 ? static_cast<char>(random()) : alphabet[below(sizeof alphabet - 1)];
      switch (below(4)) {
        case 0: text.erase(at, 1 + below(6)); break;
        case 1: text.insert(at, 1, letter); break;
        case 2: text.insert(at, text.substr(below(text.size()), below(12))); break;
        default: text[at] = letter;
      }
    }
    try {
      const score s = from_json(text);
      CHECK(from_json(to_json(s)) == s);
      CHECK_FALSE(to_text(s).empty());
      ++read;
    } catch (const error& e) {
      CHECK(e.code_value() == errc::bad_score);
      ++refused;
    }
  }
  CHECK(read > 100);
  CHECK(refused > 1000);
}
