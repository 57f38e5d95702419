// SPDX-License-Identifier: Apache-2.0
// Low-precision types to f32 and back, in vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/kernels/kernels_widen.cpp"
#include "memory/kernels/kernels_targets.hpp"

#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once for every instruction set.
#include "memory/kernels/kernels_dispatch.hpp"
#include "memory/kernels/kernels_vectors.hpp"

HWY_BEFORE_NAMESPACE();
namespace troupe::detail::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
convert_kernel choose_widening(datatype) { return nullptr; }
convert_kernel choose_narrowing(datatype) { return nullptr; }
#else

/// The last vector overlaps the one before it; fewer elements than one has are left to the plain conversion.
template <class T>
void widen_vectors(const void* from, void* to, std::size_t count) {
  const typename element<T>::stored d;
  const floats wide;
  const std::size_t lanes = hn::Lanes(wide);
  if (count < lanes) {
    for (std::size_t i = 0; i < count; ++i) store<float>(to, i, static_cast<float>(load<T>(from, i)));
    return;
  }
  for (std::size_t i = 0;; i = std::min(i + lanes, count - lanes)) {
    store_vector(wide, element<T>::widen(load_vector(d, at(from, i * sizeof(T)))), at(to, i * sizeof(float)));
    if (i == count - lanes) return;
  }
}

template <class T>
void narrow_vectors(const void* from, void* to, std::size_t count) {
  const typename element<T>::stored d;
  const floats wide;
  const std::size_t lanes = hn::Lanes(wide);
  if (count < lanes) {
    for (std::size_t i = 0; i < count; ++i) store<T>(to, i, static_cast<T>(load<float>(from, i)));
    return;
  }
  for (std::size_t i = 0;; i = std::min(i + lanes, count - lanes)) {
    store_vector(d, element<T>::narrow(load_vector(wide, at(from, i * sizeof(float)))), at(to, i * sizeof(T)));
    if (i == count - lanes) return;
  }
}

convert_kernel choose_widening(datatype type) {
  switch (type) {
    case datatype::f16: return &widen_vectors<f16>;
    case datatype::bf16: return &widen_vectors<bf16>;
    case datatype::f8e4m3: return &widen_vectors<f8e4m3>;
    case datatype::f8e5m2: return &widen_vectors<f8e5m2>;
    default: return nullptr;
  }
}

convert_kernel choose_narrowing(datatype type) {
  switch (type) {
    case datatype::f16: return &narrow_vectors<f16>;
    case datatype::bf16: return &narrow_vectors<bf16>;
    case datatype::f8e4m3: return &narrow_vectors<f8e4m3>;
    case datatype::f8e5m2: return &narrow_vectors<f8e5m2>;
    default: return nullptr;
  }
}
#endif

}  // namespace troupe::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace troupe::detail {

TROUPE_EXPORT(choose_widening);
TROUPE_EXPORT(choose_narrowing);

convert_kernel find_widening(datatype type) { return TROUPE_DISPATCH(choose_widening)(type); }
convert_kernel find_narrowing(datatype type) { return TROUPE_DISPATCH(choose_narrowing)(type); }

}  // namespace troupe::detail
#endif
