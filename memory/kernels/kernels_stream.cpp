// SPDX-License-Identifier: Apache-2.0
// Copies that bypass the caches on the way out (non-temporal stores).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_stream.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include "memory/kernels/kernels_vectors.hpp"

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
void stream_vectors(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#else
/// Whole lines are streamed; what is left at both ends, less than a line each, is stored as usual: a part of a line
/// streamed alone would cost a read and a write of memory at once.
void stream_vectors(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t line = 64;
  using tag = hn::ScalableTag<std::uint8_t>;
  const tag d;
  constexpr std::size_t width = hn::MaxLanes(tag{});
  static_assert(line % width == 0);
  const std::size_t head = std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(to) % line) % line);
  std::memcpy(to, from, head);
  auto* out = static_cast<std::uint8_t*>(to) + head;
  auto* in = static_cast<const std::uint8_t*>(from) + head;
  std::size_t left = bytes - head;
  for (; left >= 4 * line; left -= 4 * line, in += 4 * line, out += 4 * line)
    for (std::size_t i = 0; i < 4 * line; i += width) hn::Stream(hn::LoadU(d, in + i), d, out + i);
  for (; left >= line; left -= line, in += line, out += line)
    for (std::size_t i = 0; i < line; i += width) hn::Stream(hn::LoadU(d, in + i), d, out + i);
  std::memcpy(out, in, left);
}
#endif

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(stream_vectors);

void stream_bytes(void* to, const void* from, std::size_t bytes) { TROUPE_DISPATCH(stream_vectors)(to, from, bytes); }

void finish_streams() { hwy::FlushStream(); }

}  // namespace troupe::detail
#endif
