// SPDX-License-Identifier: Apache-2.0
#pragma once
// The nodes of one Chakra file, one after the other: of the binary form, or of JSON. Attributes that nobody here asks for are passed over.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/tools/replay/application.hpp"

namespace troupe {

enum class chakra_type : std::uint8_t { invalid, metadata, load, store, compute, send, recv, collective };

struct chakra_node {
  enum number : std::uint8_t {
    is_cpu_op,
    num_ops,
    tensor_size,
    comm_type,
    comm_size,
    comm_src,
    comm_dst,
    comm_tag,
    root,
    numbers
  };
  enum word : std::uint8_t { pg_name, data_type, reduce_op, words };

  std::uint64_t id = 0;
  std::string name;
  std::uint64_t type = 0;            ///< as the file says
  std::vector<std::uint64_t> needs;  ///< of both kinds; may name one twice
  std::uint64_t micros = 0;
  std::string input_values, input_types;  ///< Python's lists, as text
  std::array<std::optional<std::int64_t>, numbers> say;
  std::array<std::optional<std::string>, words> tell;
  bool some_dimensions = false;  ///< ASTRA-sim's involved_dim leaves a dimension out
};

/// The attribute's name in the file.
std::string_view name(chakra_node::number which) noexcept;
std::string_view name(chakra_node::word which) noexcept;

/// Calls `take` for each node. @throws error(bad_config) for what is no such file: which, where
void for_each_chakra_node(const trace_text& file, const std::function<void(chakra_node&&)>& take);

}  // namespace troupe
