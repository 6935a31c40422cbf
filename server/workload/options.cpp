#include "server/workload/options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/command_line.hpp"

namespace sluice::server::workload {
namespace {

using Words = std::vector<std::string>;

constexpr double kMaxSeconds = 1e6;
constexpr int kGrpcPort = 8080;
constexpr int kHttpPort = 8081;
constexpr std::uint64_t kPublishedCount = 1000;

/// What needs a second look after the parse.
struct Text {
  Words poisson, interval, change, dynamic_concurrency, dynamic_poisson, lambda_of;
  bool benchmark = false;
  bool train = true;
  std::string arrival = "poisson-ms";
  std::string input = "zeros";
};

std::optional<double> number_in(const std::string& word) {
  double value = 0;
  const char* end = word.data() + word.size();
  const auto parsed = std::from_chars(word.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

void add_words(CLI::App& app, const std::string& name, Words& words, const std::string& help,
               const std::string& type) {
  app.add_option(name, words, help)->type_name(type)->delimiter(',')->group("Arrivals");
}

void add_published(CLI::App& app, Options& options, Text& text) {
  app.add_flag("--infer,!--no-infer", options.infer, "Send inference requests (default: yes)");
  app.add_option("--infer-model", options.infer_models,
                 "Models: m closed loop, m-p Poisson, m-d dynamic concurrency, m-dp dynamic "
                 "Poisson; m[N] also for m-1 to m-(N-1)")
      ->type_name("LIST")
      ->delimiter(',');
  app.add_option("-d,--duration", options.duration_s, "Seconds to send (default: 10)")
      ->type_name("S")
      ->check(base::number(0.001, kMaxSeconds));
  app.add_option("-c,--concurrency", options.concurrency, "Outstanding requests of a closed loop")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 100'000));
  app.add_flag("--train,!--no-train", text.train,
               "Run the training jobs of --train-model (default: yes)");
  app.add_option("--train-model", options.train_models,
                 "Training jobs, which are sent again and again while requests are sent")
      ->type_name("LIST")
      ->delimiter(',');
  app.add_option("--num-epoch", options.num_epoch, "Of a training job")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1'000'000'000));
  app.add_option("--batch-size", options.train_batch_size, "Of training; see --batch")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1'000'000'000));
}

void add_arrivals(CLI::App& app, Options& options, Text& text) {
  add_words(app, "--interval", text.interval, "Closed loop: pause after an answer", "M=MS");
  add_words(app, "--poisson", text.poisson, "m-p: requests per second", "M=RATE");
  add_words(app, "--change-time-point", text.change,
            "m-d, m-dp and --benchmark (as the model 'benchmark'): when the value changes",
            "M=S,S,...");
  add_words(app, "--dynamic-concurrency", text.dynamic_concurrency,
            "m-d: outstanding requests, one value more than changes", "M=N,N,...");
  add_words(app, "--dynamic-poisson", text.dynamic_poisson,
            "m-dp: requests per second, one value more than changes", "M=RATE,RATE,...");
  auto add = [&](const std::string& name, auto& value, const std::string& help) {
    return app.add_option(name, value, help)->group("Arrivals");
  };
  auto* most = add("--random-dynamic-poisson", options.random_dynamic_poisson,
                   "With --benchmark: the most requests per second of all models")
                   ->type_name("RATE")
                   ->check(base::number(0.001, 1e6));
  app.add_flag("--benchmark", text.benchmark, "All models: a random m-dp")
      ->group("Arrivals")
      ->needs(most);
  most->needs("--benchmark");
  add("--lambda", options.lambda_ms, "Open loop: mean gap between two requests of a model")
      ->type_name("MS")
      ->check(base::number(0.001, 1e9));
  add_words(app, "--lambda-of", text.lambda_of, "The same for one model; 0: none", "M=MS");
  add("--arrival", text.arrival,
      "With --lambda: poisson-ms, whole ms drawn from Poisson(MS), nearly periodic, or poisson, "
      "a Poisson process")
      ->capture_default_str()
      ->type_name("LAW")
      ->check(base::one_of({"poisson-ms", "poisson"}));
  add("--count", options.count, "Requests of all models (default with --lambda, without -d: 1000)")
      ->type_name("N")
      ->check(base::whole_number(1, 1'000'000'000));
  auto* trace = add("--trace", options.trace_file, "Arrivals from a CSV file: time in ms, model")
                    ->type_name("FILE");
  // They would change nothing.
  for (const char* other :
       {"--infer-model", "--concurrency", "--interval", "--poisson", "--change-time-point",
        "--dynamic-concurrency", "--dynamic-poisson", "--random-dynamic-poisson", "--benchmark",
        "--lambda", "--lambda-of", "--arrival"}) {
    trace->excludes(other);
  }
  add("--max-outstanding", options.max_outstanding,
      "Open loop: while a model has so many, its requests are counted but not sent")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1'000'000));
  add("--seed", options.seed, "Of arrivals and random inputs")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<std::uint32_t>::max()));
}

void add_requests(CLI::App& app, Options& options, Text& text) {
  auto add = [&](const std::string& name, auto& value, const std::string& help) {
    return app.add_option(name, value, help)->group("Requests");
  };
  add("--host", options.host, "The server")->capture_default_str()->type_name("HOST");
  add("-p,--port", options.port, "Its port (default: 8080, with --http 8081)")
      ->type_name("PORT")
      ->check(base::whole_number(1, 65535));
  app.add_flag("--http", options.http, "Speak HTTP, not gRPC")->group("Requests");
  add("--batch", options.batch, "Items in a request")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 65536));
  add("--dim", options.dim, "Size of an input's dimensions that may have any size")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1'000'000'000));
  add("--input", text.input, "zeros or random")
      ->capture_default_str()
      ->type_name("KIND")
      ->check(base::one_of({"zeros", "random"}));
  add("--announce-ms", options.announce_ms,
      "Send the headers, with the model's name, so long before the body")
      ->type_name("MS")
      ->check(base::number(0, 60'000));
  add("--slo-ms", options.slo_ms, "The deadline of each request, after its due time")
      ->type_name("MS")
      ->check(base::number(0.001, 1e9));
  add("--empty-server", options.empty_server,
      "Send nothing; be a server that answers so many bytes at once, and print its ports. What the "
      "client measures with it is its own time")
      ->type_name("BYTES")
      ->check(base::whole_number(0, 1'000'000'000));
}

void add_output(CLI::App& app, Options& options) {
  auto add = [&](const std::string& name, auto& value, const std::string& help) {
    return app.add_option(name, value, help)->group("Output");
  };
  add("-l,--log", options.log_file, "Write the report there")->type_name("FILE");
  add("-v,--verbose", options.verbose, "1: the report also lists every request")
      ->type_name("LEVEL")
      ->expected(0, 1)
      ->default_str("1");
  add("--show-result", options.show_result,
      "Print so many values of each first output; negative: the last ones")
      ->type_name("N");
  app.add_flag("--json", options.json, "The report as JSON")->group("Output");
  add("--csv", options.csv_file, "A line for each request; also a file for --trace")
      ->type_name("FILE");
}

void check(const Options& options) {
  if (options.empty_server) return;
  if (!options.infer && options.train_models.empty()) {
    throw base::UsageError("--no-infer: nothing to do without --train-model LIST");
  }
  if (!options.train_models.empty() && options.http) {
    throw base::UsageError("--train-model: training jobs are sent by gRPC; leave out --http");
  }
  if (options.infer && options.infer_models.empty() && options.trace_file.empty()) {
    throw base::UsageError("no models: give --infer-model LIST or --trace FILE");
  }
}

constexpr const char* kFooter =
    "Open loops never wait for answers. The latency of each request counts from the time at which\n"
    "it was due, also if it was sent late.\n\n"
    "Exit codes: 0: fine; 1: no server, an unknown model, or no request was answered; 2: wrong\n"
    "usage; 130, 143: ended by Ctrl-C or SIGTERM, with a report.\n\n"
    "Examples:\n"
    "  sluice hybrid_workload --infer-model resnet50 -d 10 -c 4\n"
    "  sluice hybrid_workload --infer-model resnet50-p,bert_base --poisson resnet50=50 -d 30\n"
    "  sluice hybrid_workload --infer-model resnet50-dp --change-time-point resnet50=10,20 \\\n"
    "      --dynamic-poisson resnet50=20,200,20 -d 30 -l report.txt -v\n"
    "  sluice hybrid_workload --infer-model resnet50-p --poisson resnet50=50 -d 60 \\\n"
    "      --train-model swin_b --num-epoch 10 --batch-size 72\n"
    "  sluice hybrid_workload --no-infer --train-model swin_b\n"
    "  sluice hybrid_workload --infer-model vgg19,resnet50 --count 1000 --lambda 105 \\\n"
    "      --lambda-of vgg19=150 --csv requests.csv\n"
    "  sluice hybrid_workload --infer-model resnet50 --lambda 20 --arrival poisson -d 60 \\\n"
    "      --announce-ms 2 --slo-ms 30 --json";

}  // namespace

ByModel parse_by_model(const std::string& option, const Words& words) {
  ByModel by_model;
  std::string model;
  auto refuse = [&](const std::string& word) {
    throw base::UsageError(fmt::format("{}: found '{}', allowed: MODEL=NUMBER", option, word));
  };
  for (const std::string& word : words) {
    const auto equals = word.rfind('=');
    const std::string value = equals == std::string::npos ? word : word.substr(equals + 1);
    const auto number = number_in(value);
    if (equals != std::string::npos) {
      model = word.substr(0, equals);
    } else if (!number) {
      model = word;
      by_model[model];
      continue;
    }
    if (model.empty() || !number || !(*number >= 0 && *number <= 1e9)) refuse(word);
    by_model[model].push_back(*number);
  }
  for (const auto& [name, values] : by_model) {
    if (values.empty()) refuse(name);
  }
  return by_model;
}

std::optional<int> parse_workload_options(int argc, const char* const* argv, Options& options) {
  CLI::App app("Send inference requests to a server of the KServe v2 protocol, and report latency.",
               "sluice hybrid_workload");
  Text text;
  add_published(app, options, text);
  add_arrivals(app, options, text);
  add_requests(app, options, text);
  add_output(app, options);
  app.footer(kFooter);
  if (const auto exit_code = base::parse(app, argc, argv)) return exit_code;
  if (!text.train) options.train_models.clear();
  options.poisson = parse_by_model("--poisson", text.poisson);
  options.interval_ms = parse_by_model("--interval", text.interval);
  options.change_s = parse_by_model("--change-time-point", text.change);
  options.dynamic_concurrency = parse_by_model("--dynamic-concurrency", text.dynamic_concurrency);
  options.dynamic_poisson = parse_by_model("--dynamic-poisson", text.dynamic_poisson);
  options.lambda_of_ms = parse_by_model("--lambda-of", text.lambda_of);
  options.near_periodic = text.arrival == "poisson-ms";
  options.random_inputs = text.input == "random";
  if (options.port == 0) options.port = options.http ? kHttpPort : kGrpcPort;
  if (options.infer && !options.duration_s && !options.count && options.trace_file.empty()) {
    const bool by_gap = options.lambda_ms || !options.lambda_of_ms.empty();
    if (by_gap) {
      options.count = kPublishedCount;
    } else {
      options.duration_s = 10;
    }
  }
  check(options);
  return std::nullopt;
}

}  // namespace sluice::server::workload
