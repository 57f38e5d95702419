// SPDX-License-Identifier: Apache-2.0
#pragma once
// Descriptors of all ranks as one piece of bytes, for a NIC in another process of the host and of the same build (actors/ports/nic/nic_host.hpp).

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "protocols/offload/descriptor.hpp"

namespace troupe::offload {

std::vector<std::byte> pack(std::span<const rank_program> all);
/// By rank; nothing if it is not what pack() gives: cut off, or of parts that do not fit each other. Whether a NIC can perform them is another question
/// (descriptor_form.hpp).
std::optional<std::vector<rank_program>> unpack(std::span<const std::byte> from);

/// Whether all that the rank's descriptors touch lies in buffers of so many bytes; empty if so, else a sentence. Once an operation, since a NIC that
/// serves several programs must not be ended by the mistake of one.
std::string why_not_within(const rank_program& what, std::size_t input_bytes, std::size_t output_bytes);

}  // namespace troupe::offload
