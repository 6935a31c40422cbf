#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/command_line.hpp"
#include "base/node_service.hpp"
#include "server/memory/memory_options.hpp"
#include "server/models/config_file.hpp"
#include "server/requests/server.hpp"
#include "server/training/mode.hpp"

namespace sluice::server {

/// Training next to inference.
struct TrainOptions {
  training::Mode mode = training::Mode::kColocateL1;
  std::string store;   ///< Folder of the training jobs; empty: none.
  std::string policy;  ///< Of the trainers; empty: as the mode wants.
  double wedged_s = 10;
};

/// Where a server takes calls, and from whom.
struct AddressOptions {
  std::string listen;
  std::uint16_t grpc_port = 0;
  std::uint16_t http_port = 0;
  std::string token_file;  ///< Empty: no token is needed.
};

/// Files. Empty: no TLS.
struct TlsOptions {
  std::string certificate;
  std::string key;
  std::string client_ca;
};

/// The command line of `sluice serve`.
struct ServeOptions {
  ServerOptions server;
  MemoryOptions memory;
  TrainOptions train;
  std::vector<ModelConfig> models;
  std::string store;        ///< The model store; empty: the user's.
  std::string config_file;  ///< Empty: --models.
  AddressOptions data{"127.0.0.1", 8080, 8081, {}};
  AddressOptions control{"", 8082, 8083, {}};  ///< Of control calls. Empty: none.
  bool allow_control = false;                  ///< Control calls also at the data address.
  TlsOptions tls;                              ///< Of both, but not of unix sockets.
  std::size_t max_connections = 8192;
  double max_connection_age_s = 0;
  double drain_delay_s = 5;
  base::GpuChoice gpu = base::GpuChoice::kAuto;
  int device = 0;
  std::string session = base::default_session();
  std::size_t max_request_mb = 64;
  double body_s = 30;           ///< See api::HttpOptions::body_timeout.
  double max_live_minutes = 0;  ///< 0: without end.
  bool json = false;
  bool verbose = false;  ///< Log a line for each batch.
  std::string profile;   ///< File; empty: none.
  /// Where the models run. Set by the first process for the second, which runs under `sluice exec`.
  std::string place;
};

/// Parses the command line and reads the configuration. Returns an exit code, or nothing. Throws
/// base::UsageError.
[[nodiscard]] std::optional<int> parse_serve_options(int argc, char** argv, ServeOptions& options);

}  // namespace sluice::server
