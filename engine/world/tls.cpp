// SPDX-License-Identifier: Apache-2.0
#include "engine/world/tls.hpp"

#include "engine/config/configuration.hpp"

namespace troupe {

std::shared_ptr<const actors::tls_identity> tls_of(const engine_options& o) {
  if (o.tls_certificate.empty() && o.tls_key.empty() && o.tls_authority.empty()) return nullptr;
  return actors::tls_identity::load({o.tls_certificate, o.tls_key, o.tls_authority});
}

std::shared_ptr<const actors::tls_identity> tls_of(const id_options& options) {
  engine_options o;
  o.tls_certificate = options.tls_certificate;
  o.tls_key = options.tls_key;
  o.tls_authority = options.tls_authority;
  return tls_of(with_environment(std::move(o)));
}

std::shared_ptr<const actors::tls_identity> tls_of_environment() { return tls_of(id_options{}); }

}  // namespace troupe
