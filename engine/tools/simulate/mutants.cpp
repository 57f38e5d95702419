// SPDX-License-Identifier: Apache-2.0
#include "engine/tools/simulate/mutants.hpp"

#include <algorithm>
#include <array>

namespace troupe::simulate {

namespace {
constexpr std::array entries{
    mutant_entry{mutant::drop_called, "drop_called", "a rank's `called` does not reach the membership"},
    mutant_entry{mutant::drop_withdraw, "drop_withdraw", "a rank's `withdraw` does not reach the membership"},
    mutant_entry{mutant::drop_fail, "drop_fail", "a rank's wish to end an operation does not reach the membership"},
    mutant_entry{mutant::drop_stopped, "drop_stopped", "a rank's `stopped` does not reach the membership"},
    mutant_entry{mutant::drop_left, "drop_left", "nobody hears that a rank left"},
    mutant_entry{mutant::drop_quiet, "drop_quiet", "a rank's `quiet` does not reach the membership"},
    mutant_entry{mutant::drop_perished, "drop_perished", "a rank's `perished` does not reach the membership"},
    mutant_entry{mutant::drop_agreed, "drop_agreed", "a rank does not hear `agreed`"},
    mutant_entry{mutant::drop_ask, "drop_ask", "a rank is not asked what it has called"},
    mutant_entry{mutant::drop_stop, "drop_stop", "a rank does not hear `stop`"},
    mutant_entry{mutant::drop_failed, "drop_failed", "a rank does not hear `failed`"},
    mutant_entry{mutant::drop_broken, "drop_broken", "a rank does not hear that the communicator is broken"},
    mutant_entry{mutant::drop_peer_left, "drop_peer_left", "a rank does not hear that a peer left"},
    mutant_entry{mutant::drop_peer_lost, "drop_peer_lost", "a rank does not hear that a peer was lost"},
    mutant_entry{mutant::drop_bury, "drop_bury", "a dead rank's operations are never buried"},
    mutant_entry{mutant::drop_stuck, "drop_stuck", "nobody hears that nothing moves"},
    mutant_entry{mutant::drop_revoke, "drop_revoke", "a receiver does not hear that its sender gave up"},
    mutant_entry{mutant::drop_revoked, "drop_revoked", "a sender does not hear that its receiver has stopped"},
    mutant_entry{mutant::drop_refuse, "drop_refuse", "a peer does not hear that the other end gave up"},
    mutant_entry{mutant::drop_inquire, "drop_inquire", "nobody asks the other end of a message that does not move"},
    mutant_entry{mutant::drop_look_again, "drop_look_again",
                 "a rank that does not look is not told that its message has moved on the pair board"},
    mutant_entry{mutant::drop_credit, "drop_credit", "a credit is forgotten"},
    mutant_entry{mutant::drop_flushed, "drop_flushed", "a rank does not hear that its transfers have ended"},
    mutant_entry{mutant::drop_clear, "drop_clear", "a sender does not hear that what it has announced may come"},
    mutant_entry{mutant::stopped_early, "stopped_early", "`stopped` is answered before the rank has dropped anything"},
    mutant_entry{mutant::revoked_early, "revoked_early",
                 "`revoked` is answered before the receiver has dropped anything"},
    mutant_entry{mutant::failed_early, "failed_early", "`failed` does not wait for anybody's `stopped`"},
    mutant_entry{mutant::bury_early, "bury_early", "a dead rank is buried before the others are quiet"},
    mutant_entry{mutant::credit_early, "credit_early",
                 "a chunk is given back when it arrives, not when it was consumed"},
    mutant_entry{mutant::lost_early, "lost_early", "a rank is lost before it has perished"},
    mutant_entry{mutant::agreed_early, "agreed_early", "the membership agrees on whatever comes first"},
    mutant_entry{mutant::flushed_early, "flushed_early", "nobody waits for transfers under way"},
    mutant_entry{mutant::control_overtakes, "control_overtakes", "control messages of one sender overtake each other"},
    mutant_entry{mutant::credit_for_two, "credit_for_two", "a credit counts for the next chunk, too"},
    mutant_entry{mutant::places_stay, "places_stay",
                 "chunks are received into the places of operations that have stopped"},
    mutant_entry{mutant::fingerprint_forged, "fingerprint_forged",
                 "a chunk carries whatever fingerprint its receiver expects"},
    mutant_entry{mutant::sequence_swapped, "sequence_swapped", "two chunks of a lane have each other's numbers"},
    mutant_entry{mutant::wrong_epoch, "wrong_epoch", "a chunk carries the epoch before its own"},
    mutant_entry{mutant::chunk_invented, "chunk_invented", "chunks come that nobody has sent"},
    mutant_entry{mutant::counts_wrong, "counts_wrong", "`agreed` tells one rank other counts"},
    mutant_entry{mutant::text_differs, "text_differs", "`failed` tells one rank another text"},
    mutant_entry{mutant::presence_hidden, "presence_hidden", "`stopped` does not say what the rank called"},
    mutant_entry{mutant::performed_hidden, "performed_hidden", "`stopped` does not say that the rank had performed it"},
    mutant_entry{mutant::history_hidden, "history_hidden", "calls that ran ahead are never compared"},
    mutant_entry{mutant::stopped_for_all, "stopped_for_all", "one `stopped` counts for every rank"},
    mutant_entry{mutant::look_while_busy, "look_while_busy", "the look for trouble does not look"},
    mutant_entry{mutant::one_look_is_enough, "one_look_is_enough", "what one look suspects is taken for certain"},
    mutant_entry{mutant::always_nobody_else, "always_nobody_else", "the look believes that all callers wait"},
    mutant_entry{mutant::slots_given_back_early, "slots_given_back_early",
                 "a rank gives its slots back before it has read them"},
    mutant_entry{mutant::taken_early, "taken_early", "a sender has its buffer back before its message was taken"},
    mutant_entry{mutant::shape_forged, "shape_forged", "a message says that it has the shape its receiver expects"},
    mutant_entry{mutant::inline_goes_on_unread, "inline_goes_on_unread",
                 "a blocking caller never reads its rank's messages"},
    mutant_entry{mutant::no_tick, "no_tick", "nobody looks at the clock for a rank"},
    mutant_entry{mutant::no_advance, "no_advance", "nobody advances what is on the board"},
    mutant_entry{mutant::drop_announced, "drop_announced", "nobody looks at what waited for a piece that is ready"},
    mutant_entry{mutant::announced_early, "announced_early", "a piece counts as ready before its elements are written"},
    mutant_entry{mutant::arrived_early, "arrived_early", "a piece of the output is taken for arrived before it is"},
    mutant_entry{mutant::drop_news, "drop_news", "nobody is told of what has come for it over a board of links"},
    mutant_entry{mutant::members_by_rank, "members_by_rank",
                 "the ranks of a part are in the whole's order, not by key"},
    mutant_entry{mutant::purpose_forgotten, "purpose_forgotten",
                 "a split does not say that it is one, but the all-gather that it is made of"},
    mutant_entry{mutant::drop_gave_up, "drop_gave_up", "a part does not hear of the ranks whose split failed"},
    mutant_entry{mutant::split_misnumbered, "split_misnumbered",
                 "a rank looks for its part under another split's number"},
    mutant_entry{mutant::stop_spares_boards, "stop_spares_boards",
                 "a rank at a stage in tiers on its host's board does not hear `stop`"},
    mutant_entry{mutant::tiers_unmarked, "tiers_unmarked",
                 "messages between hosts, in tiers, do not say what the whole operation is"},
    mutant_entry{mutant::stride_forgotten, "stride_forgotten",
                 "messages between hosts, in tiers, go to the rank with the host's number"},
    mutant_entry{mutant::boards_swapped, "boards_swapped", "a rank is at the board of another host"},
    mutant_entry{mutant::host_lost_unsaid, "host_lost_unsaid",
                 "of a host that is lost the membership hears of some ranks only"},
    mutant_entry{mutant::drop_offloaded, "drop_offloaded", "a rank does not hear that the NIC has performed"},
    mutant_entry{mutant::drop_nic_let_go, "drop_nic_let_go", "a rank does not hear that the NIC has let go"},
    mutant_entry{mutant::drop_recall, "drop_recall", "the NIC does not hear that a rank wants its memory back"},
    mutant_entry{mutant::drop_nic_ready, "drop_nic_ready", "a host's NIC does not hear that another is ready"},
    mutant_entry{mutant::drop_nic_packet, "drop_nic_packet", "a packet or a response between NICs is forgotten"},
    mutant_entry{mutant::nic_not_woken, "nic_not_woken", "the last rank to post does not wake the NIC"},
    mutant_entry{mutant::offloaded_early, "offloaded_early",
                 "a rank is told that the NIC has performed what it has just got"},
    mutant_entry{mutant::let_go_early, "let_go_early",
                 "a rank has its memory back before the NIC has read that it wants it"},
    mutant_entry{mutant::posting_forged, "posting_forged",
                 "a posting says that it is of the call that the first one is of"},
    mutant_entry{mutant::link_keeps_memory, "link_keeps_memory",
                 "a link between NICs reads memory that it was to let go of"},
    mutant_entry{mutant::answers_unheard, "answers_unheard",
                 "a process is not woken by what another one's NIC has for it"},
    mutant_entry{mutant::nicd_end_unseen, "nicd_end_unseen", "a process does not see that the NIC process has ended"},
    mutant_entry{mutant::answered_memory_written, "answered_memory_written",
                 "another process's NIC writes once more what it has answered for"},
    mutant_entry{mutant::process_end_unheard, "process_end_unheard",
                 "the NIC process does not hear that a process it serves has ended"},
    mutant_entry{mutant::home_end_unseen, "home_end_unseen",
                 "a process does not see that the one whose NIC performs for it has ended"},
    mutant_entry{mutant::stopped_taken_for_ended, "stopped_taken_for_ended",
                 "a process whose NIC has been stopped counts as ended before somebody has ended it"},
};
}  // namespace

std::span<const mutant_entry> all_mutants() { return entries; }

std::string_view name(mutant which) {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.which == which; });
  return found == entries.end() ? "none" : found->name;
}

std::optional<mutant> parse_mutant(std::string_view text) {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == text; });
  if (found == entries.end()) return std::nullopt;
  return found->which;
}

}  // namespace troupe::simulate
