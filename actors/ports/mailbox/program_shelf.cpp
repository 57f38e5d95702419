// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/mailbox/program_shelf.hpp"

#include <algorithm>

namespace troupe::actors {

std::shared_ptr<const program> program_shelf::take(const std::shared_ptr<const plan>& how, rank_t rank,
                                                   const call_shape& shape) {
  const bool plain = shape.counts.empty() && shape.pieces.empty() && shape.input_displacements.empty() &&
                     shape.output_displacements.empty();
  if (plain && shape.count == how->count) return how->program_of(rank);
  copy* spare = nullptr;
  for (copy& c : copies_) {
    if (c.how != how) continue;
    if (plain && c.plain && c.count == shape.count) return c.code;
    if (c.code.use_count() == 1) spare = &c;
  }
  if (spare == nullptr) {
    copy fresh{how, std::make_shared<program>(*how->program_of(rank)), false, 0};
    if (copies_.size() < most_copies) spare = &copies_.emplace_back(std::move(fresh));
    else *(spare = &copies_[oldest_++ % most_copies]) = std::move(fresh);
  }
  spare->plain = false;  // if it throws
  fit(*spare->code, shape);
  spare->plain = plain;
  spare->count = shape.count;
  return spare->code;
}

}  // namespace troupe::actors
