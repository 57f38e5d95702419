// SPDX-License-Identifier: Apache-2.0
#pragma once
// UCX's functions. For the files of this folder alone, and only where its headers are there.
//
// The library is loaded when a job first wants it, since it changes every process that it is loaded into: it catches signals, which this
// gives back at once, and looks for network cards. So programs need it only if their jobs do, and the others never see it.

#ifdef TROUPE_HAS_UCX
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

namespace troupe::actors {

struct ucx_calls {
  decltype(&::ucp_init_version) init;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_config_read) config_read;
  decltype(&::ucp_config_release) config_release;
  decltype(&::ucp_worker_create) worker_create;
  decltype(&::ucp_worker_destroy) worker_destroy;
  decltype(&::ucp_worker_get_address) worker_get_address;
  decltype(&::ucp_worker_release_address) worker_release_address;
  decltype(&::ucp_worker_get_efd) worker_get_efd;
  decltype(&::ucp_worker_arm) worker_arm;
  decltype(&::ucp_worker_progress) worker_progress;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&::ucp_ep_create) ep_create;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx;
  decltype(&::ucp_am_send_nbx) am_send_nbx;
  decltype(&::ucp_am_data_release) am_data_release;
  decltype(&::ucp_request_check_status) request_check_status;
  decltype(&::ucp_request_free) request_free;
  decltype(&::ucs_status_string) status_string;
  decltype(&::ucs_log_push_handler) log_push_handler;
  decltype(&::ucs_log_pop_handler) log_pop_handler;

  /// Loads it the first time. Throws error(bad_config) with the system's reason where it is not installed.
  static const ucx_calls& get();
};

}  // namespace troupe::actors
#endif
