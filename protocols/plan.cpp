#include "protocols/plan.hpp"

namespace troupe {

std::shared_ptr<const program> plan::program_of(rank_t rank, std::span<const std::size_t> input_displacements,
                                                std::span<const std::size_t> output_displacements) const {
  call_shape s = shape();
  if (!input_displacements.empty() || !output_displacements.empty()) {
    s.input_displacements = input_displacements;
    s.output_displacements = output_displacements;
    return std::make_shared<const program>(compile(*notes, rank, s, cut));
  }
  const std::lock_guard lock(mutex_);
  if (programs_.empty()) programs_.resize(static_cast<std::size_t>(notes->ranks));
  auto& mine = programs_[static_cast<std::size_t>(rank)];
  if (!mine) mine = std::make_shared<const program>(compile(*notes, rank, s, cut));
  return mine;
}

std::shared_ptr<const slot_program> plan::slot_program_of(rank_t rank) const {
  const auto code = program_of(rank);
  const std::lock_guard lock(mutex_);
  if (slot_programs_.empty()) slot_programs_.resize(static_cast<std::size_t>(notes->ranks));
  auto& mine = slot_programs_[static_cast<std::size_t>(rank)];
  if (!mine) mine = std::make_shared<const slot_program>(compile_slots(*code, *slots));
  return mine;
}

}  // namespace troupe
