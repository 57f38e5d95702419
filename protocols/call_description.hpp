// SPDX-License-Identifier: Apache-2.0
#pragma once
// A call and the memory it is about, as one rank writes it down: engine/api/calls.hpp has a function for each collective.

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "protocols/call.hpp"
#include "protocols/size_list.hpp"

namespace troupe {

/// Of one call; what is not set comes from the engine.
struct call_options {
  /// From the call on. A call that has not ended by then fails (errc::timed_out). 0 or less: it has passed, and only what ends at the first looks
  /// still succeeds. A user's function (memory/types/types.hpp) that is under way at its end is waited for, by all whose buffers it may touch.
  std::optional<std::chrono::nanoseconds> deadline{};
  std::optional<determinism> level{};
  std::string choreography{};  ///< empty: the engine's; a name that cannot do it: errc::unsupported
  message_protocol protocol =
      message_protocol::unset;  ///< unset: the engine's; one that cannot do it, and nic: errc::unsupported
  int tag =
      0;  ///< of sends and receives: matched with those of the same tag, 0 … 65535. Others go by mailbox, which is slower
  /// When the ranks learn that all have called the same; the same on all of them. Unset: the engine's.
  agreement_time agreement = agreement_time::unset;

  /// Any of them is set; and any but the deadline, which is no part of what is called.
  bool any() const { return deadline.has_value() || any_but_deadline(); }
  bool any_but_deadline() const {
    return level.has_value() || !choreography.empty() || protocol != message_protocol::unset || tag != 0 ||
           agreement != agreement_time::unset;
  }
};

/// One rank's description of one operation.
struct call_description {
  call what;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::size_t> input_displacements, output_displacements;
  std::size_t input_limit = static_cast<std::size_t>(-1);  ///< elements the caller's ranges have, where known
  std::size_t output_limit = static_cast<std::size_t>(-1);
  std::size_t object_elements = 1;  ///< of all_to_all on ranges, whose blocks are whole objects
  bool pair = false;                ///< send or recv, with `peer`
  rank_t peer = -1;
  bool sending = false;
  call_options options;
};

/// A collective of equal blocks, as short as it can be said: a blocking call that is one of the rank's last ones again is performed from this, and
/// needs no description. Its fields are checked as a description's. It refers to the caller's buffers; not synchronised.
struct plain_call {
  static constexpr std::size_t unknown = static_cast<std::size_t>(-1);
  collective what = collective::barrier;
  datatype type = datatype::u8;
  rank_t root = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;                                                           ///< elements of every block
  std::size_t input_limit = unknown, output_limit = unknown, object_elements = 1;  ///< as in a description
  op reduction{};
  call_options options;

  operator call_description() const& { return plain_call{*this}.described(); }
  operator call_description() && { return described(); }

private:
  call_description described() {
    call_description d;
    d.what.what = what;
    d.what.type = type;
    d.what.count = count;
    if (is_reduction(what)) d.what.reduction = reduction;
    if (has_root(what)) d.what.root = root;
    d.input = input;
    d.output = output;
    d.input_limit = input_limit;
    d.output_limit = output_limit;
    d.object_elements = object_elements;
    d.options = std::move(options);
    return d;
  }
};

/// The same of blocks of different sizes. Its lists are its own.
struct plain_v_call {
  plain_call words;                  ///< without a count
  size_list counts, receive_counts;  ///< as in a call
  size_list input_displacements, output_displacements;

  operator call_description() const {
    call_description d = words;
    d.what.uniform = false;
    d.what.counts = counts.to_vector();
    d.what.receive_counts = receive_counts.to_vector();
    d.input_displacements = input_displacements.to_vector();
    d.output_displacements = output_displacements.to_vector();
    return d;
  }
};

/// A collective of blocks of different sizes, which refers to what describes it.
struct listed_call {
  collective what = collective::barrier;
  datatype type = datatype::u8;
  const op* reduction = nullptr;
  rank_t root = 0;
  bool in_place = false;  ///< as call::in_place
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t input_limit = plain_call::unknown, output_limit = plain_call::unknown;
  std::span<const std::size_t> counts, receive_counts;  ///< as in a call
  std::span<const std::size_t> input_displacements, output_displacements;

  explicit listed_call(const call_description& d)
      : what(d.what.what),
        type(d.what.type),
        reduction(&d.what.reduction),
        root(has_root(what) ? d.what.root : 0),
        in_place(d.what.in_place),
        input(d.input),
        output(d.output),
        input_limit(d.input_limit),
        output_limit(d.output_limit),
        counts(d.what.counts),
        receive_counts(d.what.receive_counts),
        input_displacements(d.input_displacements),
        output_displacements(d.output_displacements) {}
  explicit listed_call(const plain_v_call& c)
      : what(c.words.what),
        type(c.words.type),
        reduction(&c.words.reduction),
        root(has_root(what) ? c.words.root : 0),
        input(c.words.input),
        output(c.words.output),
        input_limit(c.words.input_limit),
        output_limit(c.words.output_limit),
        counts(c.counts),
        receive_counts(c.receive_counts),
        input_displacements(c.input_displacements),
        output_displacements(c.output_displacements) {}
};

}  // namespace troupe
