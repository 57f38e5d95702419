// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streams, and nodes as they are described to a flow (flow.hpp).

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/flow/tensor.hpp"
#include "memory/types/types.hpp"

namespace troupe {

/// What a stream carries.
struct stream_type {
  datatype type = datatype::u8;
  tensor_shape shape;
  int tiles = 0;
};

/// In which order a collective gives its tiles.
enum class tile_order {
  by_index,   ///< 0, 1, 2 …: the same in every run
  as_arrived  ///< whatever comes first; for operators of one input, whose result does not depend on it
};

struct stream_options {
  int credit = 4;  ///< tiles that the node may give before its readers have worked on the first of them
};
struct collective_options {
  tile_order order = tile_order::by_index;
  int credit = 4;
};

/// The tiles that a node of a flow gives; a handle, valid as long as its flow.
class stream_base {
public:
  const stream_type& type() const noexcept { return type_; }

protected:
  friend class flow;
  stream_base(const void* of, int id, stream_type type) : of_(of), id_(id), type_(type) {}
  const void* of_;
  int id_;
  stream_type type_;
};

/// The same, with a type that the compiler knows.
template <element T>
class stream : public stream_base {
public:
  explicit stream(const stream_base& of) : stream_base(of) {}
  const tensor_shape& shape() const noexcept { return type_.shape; }
  int tiles() const noexcept { return type_.tiles; }
};

/// Several streams for one node, which takes a tile of each at once: from(a, b).
template <element... T>
class streams {
public:
  using first = std::tuple_element_t<0, std::tuple<T...>>;
  explicit streams(const stream<T>&... each) : each_(each...) {}

  int tiles() const { return std::get<0>(each_).tiles(); }
  std::array<tensor_shape, sizeof...(T)> shapes() const {
    return std::apply([](const auto&... s) { return std::array<tensor_shape, sizeof...(T)>{s.shape()...}; }, each_);
  }
  std::vector<stream_base> bases() const {
    return std::apply([](const auto&... s) { return std::vector<stream_base>{s...}; }, each_);
  }

private:
  std::tuple<stream<T>...> each_;
};

template <element... T>
streams<T...> from(const stream<T>&... each) {
  return streams<T...>{each...};
}

/// Where a tile lies.
struct tile_place {
  std::byte* data;
  int index;
};

/// A node without types; the templates of `flow` write these. A source has no inputs, a sink no output.
struct node_description {
  std::string name;
  std::vector<stream_base> inputs{};
  std::optional<stream_type> output{};
  /// What the node takes, by input, where it wants to have it checked: type and shape.
  std::vector<std::optional<stream_type>> takes{};
  /// @param out null: this piece of work gives nothing. @param at the how many-th tile of those that one output tile is made of
  std::function<void(std::span<const tile_place> in, const tile_place* out, int at)> work{};
  std::function<void()> begin{};  ///< at each start; may be empty
  int every = 1;                  ///< tiles of the input for a tile of the output
  int lead = 0;                   ///< tiles that it gives before it takes the first
  stream_options options{};
};

}  // namespace troupe
