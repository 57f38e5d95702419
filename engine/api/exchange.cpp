// SPDX-License-Identifier: Apache-2.0
// A send to one rank and a receive from another as one operation, in all forms.

#include <cstring>
#include <functional>

#include "engine/world/communicator_state.hpp"
#include "engine/world/persistent_prepared.hpp"
#include "memory/error.hpp"

namespace troupe {

namespace {

bool overlap(const std::byte* to, std::size_t written, const std::byte* from, std::size_t read) {
  return written > 0 && read > 0 && std::less<>{}(to, from + read) && std::less<>{}(from, to + written);
}

void check_apart(const call_description& incoming, const call_description& outgoing) {
  const call &in = incoming.what, &out = outgoing.what;
  if (overlap(static_cast<const std::byte*>(incoming.output), in.count * size_of(in.type),
              static_cast<const std::byte*>(outgoing.input), out.count * size_of(out.type)))
    throw error(errc::buffers_overlap,
                "send_recv: what is received would overwrite what is being sent; use separate ranges, or "
                "send_recv_replace for one");
}

}  // namespace

// -- blocking ---------------------------------------------------------------------------------------------------------

void communicator::replace(call_description incoming, call_description outgoing) {
  if (!impl_) refuse_empty();
  const std::size_t bytes = outgoing.what.count * size_of(outgoing.what.type);
  const std::unique_ptr<std::byte[]> kept{new std::byte[bytes]};
  if (bytes > 0 && outgoing.input != nullptr) std::memcpy(kept.get(), outgoing.input, bytes);
  if (outgoing.input != nullptr) outgoing.input = kept.get();
  exchange(std::move(incoming), std::move(outgoing));  // returns, or throws, when nobody reads the copy any more
}

void communicator::exchange(const detail::message& incoming, const detail::message& outgoing) {
  if (!impl_) refuse_empty();
  const bool apart = !overlap(static_cast<const std::byte*>(incoming.output), incoming.count * size_of(incoming.type),
                              static_cast<const std::byte*>(outgoing.input), outgoing.count * size_of(outgoing.type));
  const detail::message both[] = {incoming, outgoing};
  if (impl_->at_once([&](communicator_state& of, rank_t rank) { return apart && of.run_messages(rank, both); })) return;
  exchange(incoming.described(), outgoing.described());
}

/// Nothing is begun unless both can be, so that an exception never leaves one under way on the caller's buffer.
void communicator::exchange(call_description incoming, call_description outgoing) {
  if (!impl_) refuse_empty();
  communicator_state& of = *impl_->of;
  const gate::pass inside{of.core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  actors::runtime::check_may_wait();
  const bool nothing_in = of.is_nothing(impl_->rank, incoming), nothing_out = of.is_nothing(impl_->rank, outgoing);
  if (nothing_in && nothing_out) return;
  if (nothing_in || nothing_out) return run(std::move(nothing_in ? outgoing : incoming));
  check_apart(incoming, outgoing);
  if (of.record) [[unlikely]] {
    const recorded_call noted{of, impl_->rank, {&incoming, &outgoing}};
    return of.exchange_now(impl_->rank, std::move(incoming), std::move(outgoing));
  }
  of.exchange_now(impl_->rank, std::move(incoming), std::move(outgoing));
}

void communicator_state::exchange_now(rank_t rank, call_description&& incoming, call_description&& outgoing) {
  if (run_pairs(rank, {&incoming, &outgoing})) return;
  auto in = prepare(rank, std::move(incoming), caller_waits::yes);
  auto out = prepare(rank, std::move(outgoing), caller_waits::yes);
  const actors::completion_ptr received = in->done, sent = out->done;
  {
    const actors::runtime::submitting mine{*core->runtime};
    const actors::operation_ptr both[] = {std::move(in), std::move(out)};
    cell(rank).submit_and_help(both);
    wait(rank, received);
    wait(rank, sent);
  }
  if (received->why()) throw_failure(received->why());
  if (sent->why()) throw_failure(sent->why());
}

// -- the other forms --------------------------------------------------------------------------------------------------

request::started_pair::started_pair(const std::shared_ptr<communicator_state>& of, rank_t rank,
                                    call_description&& incoming, call_description&& outgoing, bool replaces)
    : in(received), out(sent) {
  caller.of = of;
  caller.rank = rank;
  caller.done = {actors::completion_ptr{}, &done};
  caller.what = &in;
  caller.pair = this;
  of->prepare(in, rank, incoming, caller_waits::no);
  of->prepare(out, rank, outgoing, caller_waits::no);
  if (replaces) {
    copied_bytes = out.what.count * size_of(out.what.type);
    copy.reset(new std::byte[copied_bytes]);
  }
  received.then([this] { part_ended(); });
  sent.then([this] { part_ended(); });
}

/// The two operations that perform it share this until both have ended.
void request::started_pair::part_ended() {
  if (left.fetch_sub(1) == 1) done.complete(received.why() ? received.why() : sent.why());
}

void request::started_pair::begin(const actors::operation_ptr& whole) {
  if (copy) {
    if (copied_bytes > 0) std::memcpy(copy.get(), in.output, copied_bytes);
    out.input = copy.get();
  }
  actors::rank_cell& mine = caller.of->cell(caller.rank);
  mine.submit({whole, &in});
  try {
    mine.submit({whole, &out});
  } catch (...) {  // the receive is under way; nobody would ever send to it on this call's behalf
    sent.complete(make_failure(errc::out_of_memory, "there is no memory left to begin the send of a send_recv"));
    mine.post(actors::rank_order{[op = actors::operation_ptr{whole, &in}, why = sent.why()](
                                     actors::rank_state& s, actors::rank_outbox& o) { s.end(op, why, o); }});
  }
}

namespace {

/// The rest of a send_recv of which one end, or both, is with proc_null.
enum class remains : std::uint8_t { both, incoming, outgoing, nothing };
remains remains_of(const communicator_state& of, rank_t rank, call_description& incoming, call_description& outgoing) {
  const bool no_in = of.is_nothing(rank, incoming), no_out = of.is_nothing(rank, outgoing);
  if (no_in) return no_out ? remains::nothing : remains::outgoing;
  return no_out ? remains::incoming : remains::both;
}

}  // namespace

request communicator::start_exchange(call_description incoming, call_description outgoing, bool replaces) {
  if (!impl_) refuse_empty();
  const gate::pass inside{impl_->of->core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  switch (remains_of(*impl_->of, impl_->rank, incoming, outgoing)) {
    case remains::nothing: return {};
    case remains::incoming: return start(std::move(incoming));
    case remains::outgoing: return start(std::move(outgoing));
    case remains::both: break;
  }
  if (!replaces) check_apart(incoming, outgoing);
  const auto made = std::make_shared<request::started_pair>(impl_->of, impl_->rank, std::move(incoming),
                                                            std::move(outgoing), replaces);
  request r{request::started_pair::share(made)};
  r.state_->begin({made, &made->in});
  return r;
}

request communicator::join_exchange(group& in, call_description incoming, call_description outgoing, bool replaces) {
  if (!impl_) refuse_empty();
  const gate::pass inside{impl_->of->core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  switch (remains_of(*impl_->of, impl_->rank, incoming, outgoing)) {
    case remains::nothing: return {};
    case remains::incoming: return join(in, std::move(incoming));
    case remains::outgoing: return join(in, std::move(outgoing));
    case remains::both: break;
  }
  if (!replaces) check_apart(incoming, outgoing);
  return in.add(request::started_pair::share(std::make_shared<request::started_pair>(
                    impl_->of, impl_->rank, std::move(incoming), std::move(outgoing), replaces)),
                impl_);
}

persistent communicator::prepare_exchange(call_description incoming, call_description outgoing, bool replaces) {
  if (!impl_) refuse_empty();
  const gate::pass inside{impl_->of->core->door, impl_->doorway()};
  if (!inside) refuse_closed();
  switch (remains_of(*impl_->of, impl_->rank, incoming, outgoing)) {
    case remains::nothing:
    case remains::incoming: return prepare(std::move(incoming));
    case remains::outgoing: return prepare(std::move(outgoing));
    case remains::both: break;
  }
  if (!replaces) check_apart(incoming, outgoing);
  check_call(incoming, impl_->rank, impl_->of->ranks);
  check_call(outgoing, impl_->rank, impl_->of->ranks);
  auto made = std::make_unique<persistent::prepared>();
  made->member = impl_;
  made->what = std::move(incoming);
  made->outgoing = std::move(outgoing);
  made->replaces = replaces;
  return persistent{std::move(made)};
}

}  // namespace troupe
