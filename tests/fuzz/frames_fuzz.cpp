// SPDX-License-Identifier: Apache-2.0
// Bodies of frames, as a process of the same job might send them that has gone wrong: whatever is accepted must come out again as
// the same bytes, so nothing is read that was not there, and nothing is left unread. Of a head whatever is accepted must be possible; behind that of a
// stripe stand its body and the numbers of others of the same chunk, two bytes each: none may count twice, nor the chunk as complete without all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>

#include "actors/ports/link/frames.hpp"
#include "actors/ports/link/stripes.hpp"

using namespace troupe::actors;

namespace {

template <class Word>
void must_come_out_again(const std::optional<Word>& word, std::span<const std::byte> body) {
  if (!word) return;
  const std::vector<std::byte> again = to_wire(*word);
  if (again.size() != body.size() || std::memcmp(again.data(), body.data(), body.size()) != 0) std::abort();
}

void stripes_must_fit(const frame_head& head, std::span<const std::byte> rest) {
  stripe_body body;
  if (rest.size() < sizeof body) return;
  std::memcpy(&body, rest.data(), sizeof body);
  if (!why_no_stripe(head, body).empty()) return;
  // They are written there.
  const std::uint64_t bytes = head.bytes - sizeof body;
  if (body.bytes > most_chunk_bytes || body.offset > body.bytes || bytes > body.bytes - body.offset) std::abort();
  if (body.bytes > 1024 * stripe_bytes) return;
  const std::uint64_t all = (body.bytes + stripe_bytes - 1) / stripe_bytes;
  stripe_set come{body.bytes};
  std::set<std::uint64_t> known;
  const auto one = [&](std::uint64_t which) {
    const std::uint64_t offset = which % all * stripe_bytes;
    const bool fresh = known.insert(offset).second;
    if (come.begin(offset) != fresh) std::abort();
    if (fresh && come.finish(offset) != (known.size() == all)) std::abort();
  };
  one(body.offset / stripe_bytes);
  for (rest = rest.subspan(sizeof body); rest.size() >= 2; rest = rest.subspan(2))
    one(std::to_integer<std::uint64_t>(rest[0]) | std::to_integer<std::uint64_t>(rest[1]) << 8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> body(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: must_come_out_again(pair_word_from(body), body); break;
    case 1: must_come_out_again(home_word_from(body), body); break;
    case 2: must_come_out_again(ranks_word_from(body), body); break;
    case 3: must_come_out_again(process_word_from(body), body); break;
    default: {
      frame_head head;
      std::memcpy(&head, body.data(), std::min(sizeof head, body.size()));
      const std::string why = why_no_frame(head, head.number);
      bool possible = head.kind <= last_frame_kind && head.unused == 0 && head.bytes > 0 &&
                      head.bytes <= most_chunk_bytes + sizeof(chunk_body);
      // These are read as they are: no byte less, and none that would stay unread.
      if (head.kind == frame_kind::announce) possible = possible && head.bytes == sizeof(announce_body);
      if (head.kind == frame_kind::ready) possible = possible && head.bytes == sizeof(chunk_body);
      if (head.kind == frame_kind::packet)
        possible = possible && head.bytes >= sizeof(chunk_body) && head.bytes <= sizeof(chunk_body) + most_packet_bytes;
      if (head.kind == frame_kind::clear || head.kind == frame_kind::credit || head.kind == frame_kind::response)
        possible = possible && head.bytes == sizeof(credit_body);
      if (head.kind == frame_kind::stripe)
        possible = possible && head.bytes > sizeof(stripe_body) && head.bytes <= sizeof(stripe_body) + stripe_bytes;
      if (why.empty() && !possible) std::abort();
      if (why.empty() && head.kind == frame_kind::stripe && body.size() > sizeof head)
        stripes_must_fit(head, body.subspan(sizeof head));
    }
  }
  return 0;
}
