// SPDX-License-Identifier: Apache-2.0
#pragma once
// The inside of a `flow`: its description while it is built, then its plan, memory and operations, and the run under way.

#include <atomic>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <vector>

#include "actors/caf/flow_keeper.hpp"
#include "actors/waiting/completion.hpp"
#include "engine/api/partitioned.hpp"
#include "engine/flow/flow.hpp"
#include "engine/flow/flow_outside.hpp"
#include "engine/world/communicator_state.hpp"

namespace troupe {

/// A piece of memory that all tiles of a stream lie in, as its owner or a collective lays them out.
class stream_memory {
public:
  stream_memory() = default;
  /// @param blocks of a collective's buffer (1: none): slot p·blocks + b is part p of block b
  stream_memory(std::shared_ptr<std::pmr::memory_resource> from, std::size_t tile_bytes, int slots, int blocks);
  /// One of its blocks, with as many slots as that has parts; shares its memory.
  stream_memory block(int which) const;
  std::byte* at(int slot) const;
  std::byte* data() const { return data_.get(); }

private:
  std::shared_ptr<std::byte> data_;
  std::size_t tile_bytes_ = 0;
  int parts_ = 0, blocks_ = 1;
};

struct TROUPE_INTERNAL flow::inside : std::enable_shared_from_this<inside> {
  /// A node as it was described.
  struct described {
    node_description what;
    std::vector<int> inputs;  ///< streams
    int output = -1;
    // a collective:
    bool collects = false;
    collective kind{};
    communicator* comm = nullptr;
    op reduction = sum;
    rank_t root = 0;
    tile_order order = tile_order::by_index;
    int parts = 0, blocks_in = 1, blocks_out = 1;
    // somebody else's, which is otherwise like one:
    std::shared_ptr<flow_outside> outside{};
    std::string outside_kind{};
  };
  /// A stream as it was described.
  struct stream_of {
    stream_type type;
    int node = -1;       ///< −1: promised
    int closed_by = -1;  ///< the stream that fulfils the promise
    std::string promise{};
  };

  // -- flow.cpp: building --
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void refuse(const std::string& node, const std::string& why) const;
  void check_open() const;
  void check_new(const described& node) const;
  int stream_id(const stream_base& which, const std::string& node) const;
  int resolved(int stream) const;
  stream_base make_stream(int node, const stream_type& type);
  described of_all_ranks(const std::string& node, const stream_base* input, communicator& comm,
                         const collective_options& how);
  void check_root(const std::string& node, const described& rooted, const communicator& comm) const;
  std::optional<stream_base> add(described node);

  // -- flow_check.cpp: the graph as a whole --
  void check();
  void plan_graph();
  void check_ports() const;
  void check_order() const;
  void check_cycles() const;
  void lay_memory();
  stream_memory memory_of(std::size_t stream, int slots, int blocks) const;
  void lay_in_place(std::size_t stream);
  void rehearse() const;
  void prepare_operations();
  std::string waits_text(const actors::flow_wait& what) const;
  std::string waits_texts(const std::vector<actors::flow_wait>& all) const;

  // -- flow_run.cpp --
  struct run;
  void start_operations(const std::shared_ptr<actors::flow_cell>& run);
  void start_outside(int number, const std::shared_ptr<actors::flow_cell>& run);
  void wait();
  std::string where() const;  ///< "flow block, rank 1"
  std::string where_of(int operation) const;
  failure_ptr placed(int operation, const failure_ptr& why) const noexcept;

  std::shared_ptr<engine_core> core;
  std::string name;
  flow_options options;
  std::vector<described> nodes;
  std::vector<stream_of> streams;

  bool checked = false;
  std::shared_ptr<actors::flow_plan> plan;  ///< its streams are those of `streams` that have a node
  std::vector<stream_memory> memory;        ///< by stream of the plan
  std::vector<actors::flow_node_state> states;
  /// The agreements, one a communicator, and then the collectives in the order in which they were added; as flow_run_state has them.
  struct operation {
    int node = -1;  ///< −1: an agreement
    communicator* comm = nullptr;
    std::vector<std::uint8_t> votes{};
    partitioned what;                         ///< or …
    std::shared_ptr<flow_outside> outside{};  ///< … who performs it
  };
  std::vector<std::unique_ptr<operation>> operations;
  int agreements = 0;
  std::vector<int> operation_of;  ///< by node; −1: none
  int rank = 0;                   ///< in the first communicator
  /// Those whose calls the collectives are, one a communicator; the thread that waits for the flow turns them.
  std::vector<actors::flow_rank> ranks;

  /// The run under way, for those that come from outside: a part that arrives, and cancel(). They do not keep the flow.
  class to_run {
  public:
    void set(std::shared_ptr<actors::flow_cell> run) {
      const std::lock_guard lock(mutex_);
      run_.swap(run);
    }
    std::shared_ptr<actors::flow_cell> get() const {
      const std::lock_guard lock(mutex_);
      return run_;
    }

  private:
    mutable std::mutex mutex_;  // once a part, not once a chunk
    std::shared_ptr<actors::flow_cell> run_;
  };
  const std::shared_ptr<to_run> under_way = std::make_shared<to_run>();
  actors::completion_ptr end;  ///< of the last run; null: none was started
};

}  // namespace troupe
