#include "server/program/options.hpp"

#include <filesystem>
#include <limits>

#include "shm/policy_text.hpp"

namespace sluice::server {
namespace {

constexpr const char* kProfile = "server-profile";
// Little work may be queued when an order comes, because the order waits for it.
constexpr const char* kTrainPolicy = "device:200us,ahead:4ms";

struct Text {
  std::string config;
  std::string models;
  std::string scheduler = "EDF";
  std::string mode = std::string(to_string(training::Mode::kColocateL1));
  std::size_t max_queue_mb = 1024;
};

std::string check_scheduler(const std::string& text) {
  if (scheduler::parse_policy(text)) return "";
  std::string allowed;
  for (const auto policy : scheduler::kPolicies) {
    allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(policy));
  }
  return "found '" + text + "', allowed: " + allowed;
}

void add_model_options(CLI::App& app, ServeOptions& options, Text& text) {
  auto* models = app.add_option("--models", text.models,
                                "The models to serve, with default settings: NAME or NAME[N], "
                                "separated by commas")
                     ->type_name("LIST");
  app.add_option("--config", text.config,
                 "The models to serve, from a file (docs/reference/server-files.md)")
      ->type_name("FILE")
      ->excludes(models);
  app.add_option("--store", options.store,
                 "The store of exported models (default: $SLUICE_MODELS, else "
                 "~/.local/share/sluice/models)")
      ->type_name("DIR");
  base::add_gpu_option(app, options.gpu);
  app.add_option("--device", options.device,
                 "Index of the GPU of training, and of models whose configuration names none")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<int>::max()));
  base::add_session_option(app, options.session);
}

/// The options of one address, by their names.
void add_address(CLI::App& app, AddressOptions& address, const std::string& listen,
                 const std::string& grpc, const std::string& http, const std::string& token,
                 const std::string& help) {
  app.add_option(listen, address.listen, help)->capture_default_str()->type_name("ADDRESS");
  app.add_option(grpc, address.grpc_port, "Its port of gRPC; 0: any free one")
      ->capture_default_str()
      ->type_name("PORT")
      ->check(base::whole_number(0, 65535));
  app.add_option(http, address.http_port, "Its port of HTTP; 0: any free one")
      ->capture_default_str()
      ->type_name("PORT")
      ->check(base::whole_number(0, 65535));
  app.add_option(token, address.token_file,
                 "Its calls need one of the tokens of this file, one a line, as `Authorization: "
                 "Bearer TOKEN`; not the health probes")
      ->type_name("FILE");
}

void add_access_options(CLI::App& app, ServeOptions& options) {
  add_address(app, options.data, "--listen", "-p,--port", "--http", "--token-file",
              "Where requests come in: an IP address, a host name, or unix:FOLDER for sockets");
  add_address(app, options.control, "--control", "--control-port", "--control-http",
              "--control-token-file",
              "Where calls that change the server come in (load, unload, scheduler, training, "
              "shutdown), in the same forms; else nowhere");
  app.add_flag("--allow-control", options.allow_control,
               "Take the calls that change the server at --listen, too");
  auto* certificate =
      app.add_option("--tls-cert", options.tls.certificate,
                     "Speak TLS, but not on unix sockets: the certificate and its chain (PEM)")
          ->type_name("FILE");
  auto* key = app.add_option("--tls-key", options.tls.key, "The key of --tls-cert (PEM)")
                  ->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  app.add_option("--tls-client-ca", options.tls.client_ca,
                 "Clients need a certificate that one of these has signed (PEM)")
      ->type_name("FILE")
      ->needs(certificate);
}

void add_network_options(CLI::App& app, ServeOptions& options) {
  add_access_options(app, options);
  app.add_option(
         "--max-connections", options.max_connections,
         "HTTP connections; for a new one, one that has been idle for 5 s is closed, or the "
         "new one is refused")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1 << 20));
  app.add_option("--max-connection-age-s", options.max_connection_age_s,
                 "Tell gRPC clients to connect again after so long; 0: never")
      ->capture_default_str()
      ->type_name("S")
      ->check(base::number(0, 1e6));
  app.add_option("--max-request-mb", options.max_request_mb,
                 "A larger request is refused, and one of more than half of --max-queue-mb")
      ->capture_default_str()
      ->type_name("MB")
      ->check(base::whole_number(1, 2047));
  app.add_option("--body-s", options.body_s,
                 "How long the body of an HTTP request may take to arrive, and a second more for "
                 "each 64 KiB that has; then 408")
      ->capture_default_str()
      ->type_name("S")
      ->check(base::number(0.01, 86400));
}

void add_queue_options(CLI::App& app, ServeOptions& options, Text& text) {
  app.add_option("--scheduler", text.scheduler,
                 "The order of requests: EDF (earliest deadline first), FIFO, BNST, OYST, DLIR or "
                 "PARALLER (docs/reference/scheduler.md)")
      ->capture_default_str()
      ->type_name("NAME")
      ->check(check_scheduler);
  app.add_option("--admit-factor", options.server.dispatcher.admit_factor,
                 "Refuse a request whose estimated completion is later than so many times the "
                 "time to its deadline; 0: never")
      ->capture_default_str()
      ->type_name("X")
      ->check(base::number(0, 1000));
  app.add_flag("--run-late", options.server.dispatcher.run_late,
               "Run requests although their deadline has passed; else they are dropped");
  app.add_flag("--announce,!--no-announce", options.server.announce,
               "Tell the gate of a request at its headers (default: yes)");
  app.add_option("--max-queue-mb", text.max_queue_mb,
                 "Memory of requests and of responses that are not sent yet; a request that does "
                 "not fit is refused")
      ->capture_default_str()
      ->type_name("MB")
      ->check(base::whole_number(1, 1 << 20));
  app.add_option("--records", options.server.records_file,
                 "Write a JSON line for each request (docs/reference/server-files.md)")
      ->type_name("FILE");
  app.add_option(
         "--access-log", options.server.access_log,
         "Write a JSON line for each request for inference, also for those that are refused "
         "at once")
      ->type_name("FILE");
  app.add_option("--drain-delay-s", options.drain_delay_s,
                 "At SIGTERM, how long the server says that it is not ready, and answers all the "
                 "same, before it takes no more connections")
      ->capture_default_str()
      ->type_name("S")
      ->check(base::number(0, 86400));
  app.add_option("--drain-s", options.server.drain_s,
                 "At SIGTERM, how long the server goes on in all to answer requests")
      ->capture_default_str()
      ->type_name("S")
      ->check(base::number(0, 86400));
  app.add_option("--max-live-minute", options.max_live_minutes,
                 "End after so many minutes; 0: never")
      ->capture_default_str()
      ->type_name("MIN")
      ->check(base::number(0, 1e6));
}

void add_training_options(CLI::App& app, ServeOptions& options, Text& text) {
  app.add_option("-m,--mode", text.mode,
                 "How inference and training share the GPU: normal, task-switch-l1, "
                 "task-switch-l2, task-switch-l3, colocate-l1, colocate-l2 or park "
                 "(docs/reference/server-modes.md)")
      ->capture_default_str()
      ->type_name("MODE")
      ->check(training::check_mode);
  app.add_option("--train-store", options.train.store,
                 "Serve training: each file of this folder is a job, named by its stem")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  app.add_option("--train-policy", options.train.policy,
                 "The policy of trainers (default: " + std::string(kTrainPolicy) +
                     "; none with --mode normal)")
      ->type_name("POLICY")
      ->check(shm::check_policy);
  app.add_option("--profile", options.profile,
                 "Write times, memory over time and handovers at the end (default: " +
                     std::string(kProfile) + " with --train-store, else none)")
      ->type_name("FILE");
  app.add_option("--wedged-s", options.train.wedged_s,
                 "End a trainer that has not obeyed an order for so long")
      ->capture_default_str()
      ->type_name("S")
      ->check(base::number(0.01, 86400));
}

}  // namespace

std::optional<int> parse_serve_options(int argc, char** argv, ServeOptions& options) {
  CLI::App app("Serve models over the KServe v2 protocol, gRPC and HTTP.", "sluice serve");
  Text text;
  add_model_options(app, options, text);
  add_network_options(app, options);
  add_queue_options(app, options, text);
  add_memory_options(app, options.memory);
  add_training_options(app, options, text);
  app.add_flag("-v,--verbose", options.verbose, "Log a line for each batch");
  app.add_flag("--json", options.json, "Print the line that says where it listens as JSON");
  app.add_option("--place", options.place)->group("");
  app.footer(
      "Exit codes: 0: ended by SIGTERM, Ctrl-C or a client, with all requests answered; 1: the "
      "start\n"
      "failed, or requests had no answer after --drain-s; 2: wrong usage or configuration; 3: the "
      "device is unusable, restart the server;\n"
      "130, 143: a second signal ended it at once.\n\n"
      "Examples:\n"
      "  sluice serve --models resnet50\n"
      "  sluice serve --models resnet50,bert_base[2] --scheduler DLIR --records requests.jsonl\n"
      "  sluice serve --config models/config --store models --listen 0.0.0.0\n"
      "  sluice serve --models resnet50_b1 --gpu sim\n"
      "  sluice serve --config models/config --cuda-memory-pool-gb 13.5 --cold-cache-gb 2\n"
      "  sluice serve --models resnet50 --train-store train -m task-switch-l1 --control "
      "unix:control\n"
      "  curl -s localhost:8081/v2/models/resnet50");
  if (const auto exit_code = base::parse(app, argc, argv)) return exit_code;
  if (text.models.empty() && text.config.empty()) {
    throw base::UsageError("no models: give --models LIST or --config FILE");
  }
  const bool control = options.allow_control || !options.control.listen.empty();
  if (!options.train.store.empty() && !control) {
    throw base::UsageError(
        "--train-store: no client can start a job; give --control ADDRESS, or --allow-control to "
        "take control calls from everybody who reaches --listen");
  }
  options.config_file = text.config;
  options.models = text.config.empty() ? parse_model_list(text.models) : read_config(text.config);
  options.server.dispatcher.policy = *scheduler::parse_policy(text.scheduler);
  options.train.mode = *training::parse_mode(text.mode);
  if (options.profile.empty() && !options.train.store.empty()) options.profile = kProfile;
  const bool contend = options.train.mode == training::Mode::kNormal;
  if (options.train.policy.empty()) options.train.policy = contend ? "none" : kTrainPolicy;
  options.server.jobs = !contend;
  // A gate that closes before the order would keep the trainer from obeying it.
  if (is_task_switch(options.train.mode)) options.server.announce = false;
  options.server.max_queued_bytes = std::uint64_t{text.max_queue_mb} << 20;
  return std::nullopt;
}

}  // namespace sluice::server
