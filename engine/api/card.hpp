// SPDX-License-Identifier: Apache-2.0
#pragma once
// Data between a host and the core groups of its card, in an engine whose layout has a rank at the host (docs/tiers.md, "Host and card"):
//
//   engine.run(5, [](troupe::communicator& comm) {        // layout "1x1x4+host"
//     troupe::card card{comm};
//     card.upload(weights);                               // the host's, to all core groups
//     card.download(part, whole);                         // every core group's part, one behind the other, at the host
//   });
//
// Collectives of the communicator, of which every rank calls the same: an upload is a broadcast from the host's rank, a download a gather to it. They are
// performed by the elements of the card. card_memory::upload() (memory/tiers/card_memory.hpp) copies without an engine.

#include <cstddef>
#include <utility>

#include "engine/api/calls.hpp"
#include "engine/api/communicator.hpp"
#include "memory/export.hpp"
#include "memory/tiers/host_way.hpp"

namespace troupe {

/// A host and its core groups, as one rank has them. Refers to its communicator, which has to outlive it, and is used by one thread as that is.
class TROUPE_API card {
public:
  /// Throws errc::unsupported, on all ranks alike, unless one rank of the communicator's layout is at a host and others are on cards.
  explicit card(communicator& of);

  /// The rank at the host.
  rank_t host() const noexcept { return host_; }
  bool is_host() const noexcept { return comm_->rank() == host_; }
  /// All other ranks.
  int core_groups() const noexcept { return comm_->size() - 1; }

  // Each in the forms of a collective (communicator.hpp). A choreography that the options name goes before `way`; one_copy is through one card's L2, so
  // that core groups of several cards are errc::unsupported.

  /// `data` is read at the host and written at every core group. Sizes: equal on all ranks.
  template <output_buffer B>
  void upload(B&& data, host_way way = host_way::one_copy, call_options options = {}) {
    comm_->run(up(data, way, std::move(options)));
  }
  template <output_buffer B>
  [[nodiscard]] request upload_async(B&& data, host_way way = host_way::one_copy,
                                     call_options options = {}) requires outlives_call<B> {
    return comm_->start(up(data, way, std::move(options)));
  }
  template <output_buffer B>
  request upload_async(group& in, B&& data, host_way way = host_way::one_copy,
                       call_options options = {}) requires outlives_call<B> {
    return comm_->join(in, up(data, way, std::move(options)));
  }
  template <output_buffer B>
  [[nodiscard]] persistent upload_init(B&& data, host_way way = host_way::one_copy,
                                       call_options options = {}) requires outlives_call<B> {
    return comm_->prepare(up(data, way, std::move(options)));
  }

  /// `part` is read at the core groups, `whole` written at the host: their parts in the order of the ranks. Sizes: parts are equal, whole has core_groups()
  /// times as many. Elsewhere each of the two may be empty.
  template <buffer I, output_for<I> O>
  void download(I&& part, O&& whole, host_way way = host_way::one_copy, call_options options = {}) {
    comm_->run(down(part, whole, way, std::move(options)));
  }
  template <buffer I, output_for<I> O>
  [[nodiscard]] request download_async(I&& part, O&& whole, host_way way = host_way::one_copy,
                                       call_options options = {}) requires outlives_call<I> && outlives_call<O> {
    return comm_->start(down(part, whole, way, std::move(options)));
  }
  template <buffer I, output_for<I> O>
  request download_async(group& in, I&& part, O&& whole, host_way way = host_way::one_copy,
                         call_options options = {}) requires outlives_call<I> && outlives_call<O> {
    return comm_->join(in, down(part, whole, way, std::move(options)));
  }
  template <buffer I, output_for<I> O>
  [[nodiscard]] persistent download_init(I&& part, O&& whole, host_way way = host_way::one_copy,
                                         call_options options = {}) requires outlives_call<I> && outlives_call<O> {
    return comm_->prepare(down(part, whole, way, std::move(options)));
  }

private:
  template <class B>
  plain_call up(B& data, host_way way, call_options options) const {
    return calls::broadcast(data, host_, named(way, std::move(options)));
  }
  template <class I, class O>
  plain_v_call down(I& part, O& whole, host_way way, call_options options) const {
    using detail::data_of, detail::size_of_buffer;
    const std::size_t given = is_host() ? 0 : size_of_buffer(part);
    plain_v_call c = calls::gather_v(data_of(part), given, data_of(whole),
                                     blocks(is_host() ? size_of_buffer(whole) : given, detail::carried<I>.width),
                                     type_of<I>, host_, named(way, std::move(options)));
    c.words.output_limit = size_of_buffer(whole);
    return c;
  }
  static call_options named(host_way way, call_options options);
  /// Of a download, in elements: of which `size` are at the host, or in a core group's part. @param object elements of one object
  block_list blocks(std::size_t size, std::size_t object) const;

  communicator* comm_;
  rank_t host_;
};

}  // namespace troupe
