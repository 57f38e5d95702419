// SPDX-License-Identifier: Apache-2.0
#ifdef TROUPE_HAS_UCX
#include "actors/ports/link/ucx/ucx_calls.hpp"

#include <string>

#include <dlfcn.h>

#include "memory/error.hpp"

namespace troupe::actors {

namespace {

class opened_library {
public:
  explicit opened_library(const char* name) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) { check(handle_); }
  template <class Function>
  void find(Function& function, const char* name) const {
    void* const found = ::dlsym(handle_, name);
    check(found);
    function = reinterpret_cast<Function>(found);
  }

private:
  static void check(const void* found) {
    if (found != nullptr) return;
    const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    throw error(errc::bad_config, "engine.transport is \"ucx\", which cannot be loaded (package libucx0): " +
                                      std::string{why == nullptr ? "no reason is given" : why});
  }
  void* handle_;  // for good: its threads may be anywhere in it
};

ucx_calls load() {
  const opened_library ucs{"libucs.so.0"}, ucp{"libucp.so.0"};
  // A program's signals are its own.
  void (*disable_signals)() = nullptr;
  ucs.find(disable_signals, "ucs_debug_disable_signals");
  disable_signals();
  ucx_calls c{};
  ucp.find(c.init, "ucp_init_version");
  ucp.find(c.cleanup, "ucp_cleanup");
  ucp.find(c.config_read, "ucp_config_read");
  ucp.find(c.config_release, "ucp_config_release");
  ucp.find(c.worker_create, "ucp_worker_create");
  ucp.find(c.worker_destroy, "ucp_worker_destroy");
  ucp.find(c.worker_get_address, "ucp_worker_get_address");
  ucp.find(c.worker_release_address, "ucp_worker_release_address");
  ucp.find(c.worker_get_efd, "ucp_worker_get_efd");
  ucp.find(c.worker_arm, "ucp_worker_arm");
  ucp.find(c.worker_progress, "ucp_worker_progress");
  ucp.find(c.worker_set_am_recv_handler, "ucp_worker_set_am_recv_handler");
  ucp.find(c.ep_create, "ucp_ep_create");
  ucp.find(c.ep_close_nbx, "ucp_ep_close_nbx");
  ucp.find(c.am_send_nbx, "ucp_am_send_nbx");
  ucp.find(c.am_data_release, "ucp_am_data_release");
  ucp.find(c.request_check_status, "ucp_request_check_status");
  ucp.find(c.request_free, "ucp_request_free");
  ucs.find(c.status_string, "ucs_status_string");
  ucs.find(c.log_push_handler, "ucs_log_push_handler");
  ucs.find(c.log_pop_handler, "ucs_log_pop_handler");
  return c;
}

}  // namespace

const ucx_calls& ucx_calls::get() {
  static const ucx_calls all = load();
  return all;
}

}  // namespace troupe::actors
#endif
