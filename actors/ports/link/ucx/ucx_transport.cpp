// SPDX-License-Identifier: Apache-2.0
#include "actors/ports/link/ucx/ucx_transport.hpp"

#include "memory/error.hpp"

#ifdef TROUPE_HAS_UCX
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "actors/ports/link/ucx/ucx_calls.hpp"
#include "actors/ports/link/without_signals.hpp"
#include "actors/waiting/napping.hpp"

namespace troupe::actors {

namespace {

/// Of a message, without its head.
constexpr std::size_t most_message = 64 * 1024;
/// Of a line: what UCX has not sent yet.
constexpr std::size_t most_under_way = 8;
/// That came before one that was sent earlier, as on networks of several ways they may.
constexpr std::size_t most_early = 1024;
/// Bytes of all lines that have come and wait to be read, in UCX's memory, before progress() leaves the rest to the network. The messages that one step of UCX
/// brings come on top.
constexpr std::size_t most_held = 1 << 20;
/// For the other ends to hear that this one is gone.
constexpr std::chrono::milliseconds most_closing{500};
constexpr unsigned message_id = 1;

struct message_head {
  line_names::name name;
  std::uint64_t number;  ///< 0, 1, 2 … of the line and direction
};

class ucx_line;
class ucx_worker;

/// UCX reads it until its request has ended, whatever becomes of the line.
struct sent_message {
  explicit sent_message(ucx_worker& worker) : of(worker) {}
  ucx_worker& of;
  ucx_line* line = nullptr;      ///< null: it is no more
  sent_message* next = nullptr;  ///< of those that are idle
  message_head head{};
  std::array<std::byte, most_message> bytes;
};

/// UCX's memory.
struct came_message {
  std::byte* data;
  std::size_t bytes;
};

/// Guards all of UCX by one lock: nobody waits inside it.
class ucx_worker final : public transport, public std::enable_shared_from_this<ucx_worker> {
public:
  static std::shared_ptr<ucx_worker> make() { return {new ucx_worker, &ucx_worker::end_or_leave}; }
  ucx_worker(const ucx_worker&) = delete;
  ucx_worker& operator=(const ucx_worker&) = delete;

  std::vector<std::byte> address() const override { return address_; }
  std::shared_ptr<transport_line> line_to(std::span<const std::byte> address, const line_names& names) override;
  void progress() override;
  bool fall_asleep() override;
  int bell() const override { return bell_; }

private:
  friend class ucx_line;
  ucx_worker();
  ~ucx_worker() override;
  static void end_or_leave(ucx_worker* of);
  ucs_status_t connect(ucp_ep_params_t& to, ucp_ep_h& end, bool& tells_losses);
  void check(ucs_status_t status, const char* what) const;
  void end() noexcept;
  static ucs_status_t came(void* worker, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                           const ucp_am_recv_param_t* how);
  ucs_status_t take(const message_head& head, void* data, std::size_t bytes, const ucp_am_recv_param_t& how);
  sent_message* idle_message() noexcept;
  void keep(sent_message& idle);
  /// A message that waits for an earlier one cannot be read before that has come: alone it stops nothing.
  bool is_full() const { return ready_ > 0 && ready_ + early_ >= most_held; }

  const ucx_calls& ucx_;
  mutable std::mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int bell_ = -1;
  std::vector<std::byte> address_;
  std::map<line_names::name, ucx_line*> lines_;  ///< by what comes
  std::deque<sent_message> sent_;                ///< as many as were ever under way at once
  sent_message* idle_ = nullptr;                 ///< the first of them
  std::vector<void*> closing_;                   ///< requests
  std::size_t ready_ = 0, early_ = 0;            ///< bytes of all lines' messages
};

class ucx_line final : public transport_line {
public:
  ucx_line(std::shared_ptr<ucx_worker> of, std::span<const std::byte> address, const line_names& names);
  ~ucx_line() override;
  ucx_line(const ucx_line&) = delete;
  ucx_line& operator=(const ucx_line&) = delete;

  ssize_t send(std::span<const iovec> parts) override;
  ssize_t receive(std::span<std::byte> to) override;
  bool has_input() const override;
  bool has_room() const override;
  bool is_under_way() const override;
  std::string why() const override;

private:
  friend class ucx_worker;
  static void broke(void* line, ucp_ep_h, ucs_status_t status);
  static void sent(void* request, ucs_status_t status, void* message);
  void fail(const char* why) noexcept;
  ucs_status_t take(std::uint64_t number, came_message what);
  void drop(const came_message& what, std::size_t& counted) const {
    counted -= what.bytes;
    of_->ucx_.am_data_release(of_->worker_, what.data);
  }

  const std::shared_ptr<ucx_worker> of_;
  const line_names names_;
  ucp_ep_h end_ = nullptr;
  bool tells_losses_ = false;  ///< UCX does, of the other process
  // With the worker's lock.
  const char* why_ = nullptr;
  std::uint64_t next_to_send_ = 0, next_to_come_ = 0;
  std::size_t under_way_ = 0;  ///< messages
  std::deque<came_message> ready_;
  std::size_t done_ = 0;  ///< of the first one
  std::map<std::uint64_t, came_message> early_;
};

// -- the worker -------------------------------------------------------------------------------------------------------------

ucx_worker::ucx_worker() : ucx_(ucx_calls::get()) {
  const without_signals of_its_thread;
  ucp_config_t* config = nullptr;
  check(ucx_.config_read(nullptr, nullptr, &config), "its configuration (UCX_...) cannot be read");
  ucp_params_t wanted{};
  wanted.field_mask = UCP_PARAM_FIELD_FEATURES;
  wanted.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  const ucs_status_t begun = ucx_.init(UCP_API_MAJOR, UCP_API_MINOR, &wanted, config, &context_);
  ucx_.config_release(config);
  try {
    check(begun, "it cannot be used");
    ucp_worker_params_t how{};
    how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    how.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(ucx_.worker_create(context_, &how, &worker_), "it makes no worker");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = message_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
    handler.cb = &ucx_worker::came;
    handler.arg = this;
    check(ucx_.worker_set_am_recv_handler(worker_, &handler), "it knows no active messages");
    check(ucx_.worker_get_efd(worker_, &bell_), "it cannot be waited for");
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    check(ucx_.worker_get_address(worker_, &address, &bytes), "it has no address");
    const auto* const at = reinterpret_cast<const std::byte*>(address);
    address_.assign(at, at + bytes);
    ucx_.worker_release_address(worker_, address);
  } catch (...) {
    end();
    throw;
  }
}

ucx_worker::~ucx_worker() { end(); }

/// UCX would abort at an endpoint that could not be closed, as it waits for memory of a process that is gone. So it stays until this process ends, and all of the
/// worker with it: UCX may still read messages that were sent, and call what it was given.
void ucx_worker::end_or_leave(ucx_worker* of) {
  const auto until = std::chrono::steady_clock::now() + most_closing;
  nap_until(
      [&] {
        of->progress();
        return of->closing_.empty() || std::chrono::steady_clock::now() >= until;
      },
      std::chrono::milliseconds{1});
  if (of->closing_.empty()) delete of;
}

void ucx_worker::end() noexcept {
  if (worker_ != nullptr) ucx_.worker_destroy(worker_);
  if (context_ != nullptr) ucx_.cleanup(context_);
}

void ucx_worker::check(ucs_status_t status, const char* what) const {
  if (status != UCS_OK) throw error(errc::io, std::string{"UCX: "} + what + ": " + ucx_.status_string(status));
}

std::shared_ptr<transport_line> ucx_worker::line_to(std::span<const std::byte> address, const line_names& names) {
  if (address.empty()) throw error(errc::io, "the other end has no address of UCX");
  return std::make_shared<ucx_line>(shared_from_this(), address, names);
}

/// Where memory is all that UCX may use, it cannot tell that a process is gone; the socket beside the line does. UCX logs that, though it is no error: it is kept from its
/// log, which is the process's, as are the handlers, a stack without a lock. So one line at a time is made, of all workers, and what UCX has
/// to say elsewhere in the process at that moment is not written. @pre locked
ucs_status_t ucx_worker::connect(ucp_ep_params_t& to, ucp_ep_h& end, bool& tells_losses) {
  static std::mutex of_the_process;
  const std::lock_guard lock(of_the_process);
  to.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ucx_.log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*,
                           const char*, va_list) { return UCS_LOG_FUNC_RC_STOP; });
  ucs_status_t tried = ucx_.ep_create(worker_, &to, &end);
  ucx_.log_pop_handler();
  tells_losses = tried == UCS_OK;
  if (tried != UCS_ERR_UNREACHABLE) return tried;
  to.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  return ucx_.ep_create(worker_, &to, &end);
}

void ucx_worker::progress() {
  const std::lock_guard lock(mutex_);
  while (!is_full() && ucx_.worker_progress(worker_) != 0) {}
  std::erase_if(closing_, [this](void* request) {
    if (ucx_.request_check_status(request) == UCS_INPROGRESS) return false;
    ucx_.request_free(request);
    return true;
  });
}

/// Allocates where more are under way than ever before. Null: there is no memory.
sent_message* ucx_worker::idle_message() noexcept try {
  if (idle_ == nullptr) return &sent_.emplace_back(*this);
  return std::exchange(idle_, idle_->next);
} catch (const std::bad_alloc&) {
  return nullptr;
}

void ucx_worker::keep(sent_message& idle) {
  idle.line = nullptr;
  idle.next = std::exchange(idle_, &idle);
}

bool ucx_worker::fall_asleep() {
  const std::lock_guard lock(mutex_);
  if (is_full()) return false;
  if (lines_.empty()) return true;  // nothing is to be heard, whatever UCX says (below)
  // It says "busy" for ever where it sees the beginning of what a process of this system was about to write when it was killed.
  const ucs_status_t armed = ucx_.worker_arm(worker_);
  if (armed == UCS_OK || armed == UCS_ERR_BUSY) return armed == UCS_OK;
  // Nothing would be heard any more: every line fails, so its reader learns it.
  for (const auto& [name, line] : lines_) line->fail(ucx_.status_string(armed));
  return false;
}

ucs_status_t ucx_worker::came(void* worker, const void* head, std::size_t head_bytes, void* data, std::size_t bytes,
                              const ucp_am_recv_param_t* how) {
  message_head said;
  if (head_bytes != sizeof said) return UCS_OK;
  std::memcpy(&said, head, sizeof said);
  return static_cast<ucx_worker*>(worker)->take(said, data, bytes, *how);
}

/// A message without a line's name is a stranger's, or late: dropped.
ucs_status_t ucx_worker::take(const message_head& head, void* data, std::size_t bytes, const ucp_am_recv_param_t& how) {
  const auto line = lines_.find(head.name);
  if (line == lines_.end()) return UCS_OK;
  if ((how.recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) == 0 || bytes == 0 || bytes > most_message)
    return line->second->fail("it sent what cannot be read"), UCS_OK;
  return line->second->take(head.number, {static_cast<std::byte*>(data), bytes});
}

// -- a line -----------------------------------------------------------------------------------------------------------------

ucx_line::ucx_line(std::shared_ptr<ucx_worker> of, std::span<const std::byte> address, const line_names& names)
    : of_(std::move(of)), names_(names) {
  ucp_ep_params_t to{};
  to.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  to.address = reinterpret_cast<const ucp_address_t*>(address.data());
  to.err_handler = {&ucx_line::broke, this};
  const std::lock_guard lock(of_->mutex_);
  of_->lines_[names_.here] = this;
  const ucs_status_t connected = of_->connect(to, end_, tells_losses_);
  if (connected == UCS_OK) return;
  of_->lines_.erase(names_.here);
  of_->check(connected, "there is no way to it (UCX_TLS, UCX_NET_DEVICES)");
}

ucx_line::~ucx_line() {
  const std::lock_guard lock(of_->mutex_);
  of_->lines_.erase(names_.here);
  for (sent_message& m : of_->sent_)
    if (m.line == this) m.line = nullptr;
  for (const came_message& m : ready_) drop(m, of_->ready_);
  for (const auto& [number, m] : early_) drop(m, of_->early_);
  // By force: what must be heard was heard when connections are closed.
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  how.flags = tells_losses_ ? UCP_EP_CLOSE_FLAG_FORCE : 0;  // which UCX allows only then
  void* const request = of_->ucx_.ep_close_nbx(end_, &how);
  if (UCS_PTR_IS_PTR(request)) of_->closing_.push_back(request);
}

void ucx_line::broke(void* line, ucp_ep_h, ucs_status_t status) {
  auto* const it = static_cast<ucx_line*>(line);
  it->fail(it->of_->ucx_.status_string(status));
}

void ucx_line::fail(const char* why) noexcept {
  if (why_ == nullptr) why_ = why;
}

void ucx_line::sent(void* request, ucs_status_t, void* message) {
  auto& one = *static_cast<sent_message*>(message);
  one.of.ucx_.request_free(request);
  if (one.line != nullptr) --one.line->under_way_;  // broke() tells of errors
  one.of.keep(one);
}

ssize_t ucx_line::send(std::span<const iovec> parts) {
  const std::lock_guard lock(of_->mutex_);
  const auto refuse = [](int why) { return errno = why, ssize_t{-1}; };
  if (why_ != nullptr) return refuse(EPROTO);
  if (under_way_ >= most_under_way) return refuse(EAGAIN);
  sent_message* const idle = of_->idle_message();
  if (idle == nullptr) return fail("there is no memory for what is sent to it"), refuse(ENOMEM);
  sent_message& one = *idle;
  std::size_t bytes = 0;
  for (const iovec& part : parts) {
    const std::size_t now = std::min(part.iov_len, most_message - bytes);
    if (now > 0) std::memcpy(one.bytes.data() + bytes, part.iov_base, now);
    bytes += now;
  }
  one.head = {names_.there, next_to_send_++};
  one.line = this;
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.flags = UCP_AM_SEND_FLAG_EAGER;
  how.cb.send = &ucx_line::sent;
  how.user_data = &one;
  const void* const request =
      of_->ucx_.am_send_nbx(end_, message_id, &one.head, sizeof one.head, one.bytes.data(), bytes, &how);
  if (UCS_PTR_IS_ERR(request)) {
    fail(of_->ucx_.status_string(UCS_PTR_STATUS(request)));
    of_->keep(one);
    return refuse(EPROTO);
  }
  if (request != nullptr) ++under_way_;
  else of_->keep(one);
  return static_cast<ssize_t>(bytes);
}

ssize_t ucx_line::receive(std::span<std::byte> to) {
  const std::lock_guard lock(of_->mutex_);
  std::size_t got = 0;
  while (got < to.size() && !ready_.empty()) {
    const came_message& from = ready_.front();
    const std::size_t now = std::min(to.size() - got, from.bytes - done_);
    std::memcpy(to.data() + got, from.data + done_, now);
    got += now;
    done_ += now;
    if (done_ < from.bytes) break;
    drop(from, of_->ready_);
    ready_.pop_front();
    done_ = 0;
  }
  if (got > 0) return static_cast<ssize_t>(got);
  errno = why_ != nullptr ? EPROTO : EAGAIN;
  return -1;
}

/// On the thread of progress(), in UCX, which knows no exceptions. UCS_INPROGRESS: the data is kept.
ucs_status_t ucx_line::take(std::uint64_t number, came_message what) {
  if (number < next_to_come_ || early_.contains(number) || early_.size() >= most_early)
    return fail("it sent what cannot be read"), UCS_OK;
  bool kept = false;
  const auto is_ready = [&](const came_message& one) {
    ready_.push_back(one);
    of_->ready_ += one.bytes;
    ++next_to_come_;
  };
  try {
    if (number != next_to_come_) {
      early_.emplace(number, what);
      of_->early_ += what.bytes;
      return UCS_INPROGRESS;
    }
    is_ready(what);
    kept = true;
    while (!early_.empty() && early_.begin()->first == next_to_come_) {
      const came_message next = early_.begin()->second;
      is_ready(next);
      early_.erase(early_.begin());
      of_->early_ -= next.bytes;
    }
  } catch (const std::bad_alloc&) {
    fail("there is no memory for what it sent");
  }
  return kept ? UCS_INPROGRESS : UCS_OK;
}

bool ucx_line::has_input() const {
  const std::lock_guard lock(of_->mutex_);
  return why_ != nullptr || !ready_.empty();
}

bool ucx_line::has_room() const {
  const std::lock_guard lock(of_->mutex_);
  return why_ != nullptr || under_way_ < most_under_way;
}

bool ucx_line::is_under_way() const {
  const std::lock_guard lock(of_->mutex_);
  return under_way_ > 0;
}

std::string ucx_line::why() const {
  const std::lock_guard lock(of_->mutex_);
  return why_ == nullptr ? std::string{} : std::string{"UCX: "} + why_;
}

}  // namespace

std::string ucx_version() { return std::to_string(UCP_API_MAJOR) + "." + std::to_string(UCP_API_MINOR); }

std::shared_ptr<transport> make_ucx_transport() { return ucx_worker::make(); }

}  // namespace troupe::actors

#else

namespace troupe::actors {

std::string ucx_version() { return {}; }

std::shared_ptr<transport> make_ucx_transport() {
  throw error(errc::bad_config,
              "engine.transport is \"ucx\", but this Troupe was built without UCX (libucx-dev, TROUPE_UCX)");
}

}  // namespace troupe::actors
#endif
