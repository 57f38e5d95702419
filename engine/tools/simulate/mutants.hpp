// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ways to break the protocol on purpose, between the states: in what connects them, never in the states themselves. A simulation
// that does not notice one of them would not notice the like in an engine.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace troupe::simulate {

enum class mutant : std::uint8_t {
  none,
  // A message is forgotten (sometimes).
  drop_called,
  drop_withdraw,
  drop_fail,
  drop_stopped,
  drop_left,
  drop_quiet,
  drop_perished,
  drop_agreed,
  drop_ask,
  drop_stop,
  drop_failed,
  drop_broken,
  drop_peer_left,
  drop_peer_lost,
  drop_bury,
  drop_stuck,
  drop_revoke,
  drop_revoked,
  drop_refuse,
  drop_inquire,
  drop_look_again,
  drop_credit,
  drop_flushed,
  drop_clear,
  // An answer is given before what it says is true.
  stopped_early,
  revoked_early,
  failed_early,
  bury_early,
  credit_early,
  lost_early,
  agreed_early,
  flushed_early,
  // Messages of one sender to one receiver overtake each other.
  control_overtakes,
  // What a message says is wrong.
  credit_for_two,
  places_stay,
  fingerprint_forged,
  sequence_swapped,
  wrong_epoch,
  chunk_invented,
  counts_wrong,
  text_differs,
  presence_hidden,
  performed_hidden,
  history_hidden,
  stopped_for_all,
  // The look for trouble sees what is not there.
  look_while_busy,
  one_look_is_enough,
  always_nobody_else,
  // On the boards.
  slots_given_back_early,
  taken_early,
  shape_forged,
  inline_goes_on_unread,
  // Around a rank.
  no_tick,
  no_advance,
  // Of partitioned operations.
  drop_announced,
  announced_early,
  arrived_early,
  drop_news,
  // Of splits.
  members_by_rank,
  purpose_forgotten,
  drop_gave_up,
  split_misnumbered,
  // Of operations in tiers, and of hosts.
  stop_spares_boards,
  tiers_unmarked,
  stride_forgotten,
  boards_swapped,
  host_lost_unsaid,
  // Of NICs.
  drop_offloaded,
  drop_nic_let_go,
  drop_recall,
  drop_nic_ready,
  drop_nic_packet,
  nic_not_woken,
  offloaded_early,
  let_go_early,
  posting_forged,
  link_keeps_memory,
  answers_unheard,
  nicd_end_unseen,
  answered_memory_written,
  // Of processes that are lost to their host's NIC.
  process_end_unheard,
  home_end_unseen,
  stopped_taken_for_ended,
};

struct mutant_entry {
  mutant which;
  std::string_view name;
  std::string_view what;
};
/// All but `none`.
std::span<const mutant_entry> all_mutants();
std::string_view name(mutant which);
std::optional<mutant> parse_mutant(std::string_view text);

}  // namespace troupe::simulate
