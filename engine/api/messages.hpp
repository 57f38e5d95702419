// SPDX-License-Identifier: Apache-2.0
#pragma once
// A blocking send or receive as its caller gives it: some words that refer to the caller's, since nothing of them outlives the call. A
// call_description (calls.hpp) keeps all that a call may ever need, which takes longer to fill than a short message to travel.

#include <cstddef>

#include "engine/api/arguments.hpp"
#include "engine/api/calls.hpp"

namespace troupe::detail {

inline const call_options no_options{};

/// Refers to what it was given. Elements of `type`.
struct message {
  const void* input = nullptr;  ///< of a send
  void* output = nullptr;       ///< of a receive
  std::size_t count = 0;
  datatype type = datatype::u8;
  rank_t peer = -1;
  bool sending = false;
  const call_options* options = &no_options;

  call_description described() const {
    return sending ? calls::send(input, count, type, peer, *options) : calls::recv(output, count, type, peer, *options);
  }
};

inline message outgoing(const void* data, std::size_t count, datatype type, rank_t to,
                        const call_options& o = no_options) {
  return {data, nullptr, count, type, to, true, &o};
}
template <buffer B>
message outgoing(B&& data, rank_t to, const call_options& o = no_options) {
  return outgoing(data_of(data), size_of_buffer(data), type_of<B>, to, o);
}

inline message incoming(void* data, std::size_t count, datatype type, rank_t from, const call_options& o = no_options) {
  return {nullptr, data, count, type, from, false, &o};
}
template <output_buffer B>
message incoming(B&& data, rank_t from, const call_options& o = no_options) {
  return incoming(data_of(data), size_of_buffer(data), type_of<B>, from, o);
}

}  // namespace troupe::detail
