// SPDX-License-Identifier: Apache-2.0
// Bodies of frames, as a process of the same job might send them that has gone wrong: whatever is accepted must come out again as
// the same bytes, so nothing is read that was not there, and nothing is left unread.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "actors/ports/link/frames.hpp"

using namespace troupe::actors;

namespace {

template <class Word>
void must_come_out_again(const std::optional<Word>& word, std::span<const std::byte> body) {
  if (!word) return;
  const std::vector<std::byte> again = to_wire(*word);
  if (again.size() != body.size() || std::memcmp(again.data(), body.data(), body.size()) != 0) std::abort();
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
      if (head.kind == frame_kind::clear || head.kind == frame_kind::credit)
        possible = possible && head.bytes == sizeof(credit_body);
      if (why.empty() && !possible) std::abort();
    }
  }
  return 0;
}
