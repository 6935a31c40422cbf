// Who may make a call, over both protocols, and the files that say so.
#include "server/api/access.hpp"

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "certificates.hpp"
#include "grpc_server_test.hpp"
#include "http_server_test.hpp"
#include "support/temp_folder.hpp"

namespace sluice::server::api {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;
using test::http_request;
using test::self_signed;

const std::string kToken = "0123456789abcdef";

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "";
}

class AccessFiles : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_.write(name, text);
    chmod(path.c_str(), mode);
    return path;
  }
  test::TempFolder folder_;
};

TEST_F(AccessFiles, TokensAreReadFromAPrivateFile) {
  const std::string other = "another-token-0001";
  const std::string path = file("tokens", "# ours\n " + kToken + " \n\n" + other + "\n");
  EXPECT_EQ(read_tokens(path), (std::vector<std::string>{kToken, other}));
}

// Prevents: a token of a file from an editor on Windows, which no client can send.
TEST_F(AccessFiles, AByteOrderMarkAndCarriageReturnsAreNoPartOfAToken) {
  for (const char* const begin : {"", "# ours\r\n", "\r\n"}) {
    const std::string path = file("bom", "\xEF\xBB\xBF" + (begin + kToken) + "\r\n");
    EXPECT_EQ(read_tokens(path), std::vector<std::string>{kToken}) << begin;
  }
}

TEST(Access, TheSchemeAndTheTokenHaveBlanksBetweenThem) {
  const Access access{true, {kToken}};
  const auto code = [&](const std::string& header) {
    return check_access(access, Right::kUse, header).code;
  };
  for (const char* const good : {"Bearer ", "bearer  ", "BEARER     "}) {
    EXPECT_EQ(code(good + kToken), Code::kOk) << good;
    EXPECT_EQ(code(good + kToken + " "), Code::kOk) << good;
  }
  for (const char* const bad :
       {"", "Bearer", "Bearer\t", "Bearerx ", "Basic ", " Bearer ", "Bearer x "}) {
    EXPECT_EQ(code(bad + kToken), Code::kUnauthenticated) << bad;
  }
  for (const char* const none : {"", "Bearer", "Bearer ", "Bearer   "}) {
    EXPECT_EQ(code(none), Code::kUnauthenticated) << none;
  }
  EXPECT_EQ(code("Bearer " + kToken + "0"), Code::kUnauthenticated);
  EXPECT_EQ(code("Bearer " + kToken.substr(1)), Code::kUnauthenticated);
}

// Prevents: a token that every user of the machine can read, or guess.
TEST_F(AccessFiles, AnUnfitTokenFileIsRefused) {
  const auto refusal = [](const std::string& path) {
    return error_of([&] { static_cast<void>(read_tokens(path)); });
  };
  EXPECT_NE(refusal(file("a", kToken, 0644)).find("chmod 600"), std::string::npos);
  EXPECT_NE(refusal(file("b", kToken, 0620)).find("chmod 600"), std::string::npos);
  EXPECT_EQ(refusal(file("c", kToken, 0640)), "") << "a group may be meant";
  EXPECT_NE(refusal(file("d", "short\n")).find("at least 16"), std::string::npos);
  EXPECT_EQ(refusal(file("f", std::string(12 << 10, 'x'))), "");
  EXPECT_NE(refusal(file("g", std::string((12 << 10) + 1, 'x'))).find("at most"), std::string::npos)
      << "never fits into the headers";
  EXPECT_NE(refusal(file("e", "# nothing\n")).find("no token"), std::string::npos);
  EXPECT_NE(refusal(folder_.file("none")).find("cannot be read"), std::string::npos);
}

// Prevents: a server that its clients refuse, which only they say.
TEST_F(AccessFiles, AnUnfitCertificateIsRefused) {
  const auto good = self_signed();
  const std::string certificate = file("good.pem", good.certificate, 0644);
  const std::string key = file("good.key", good.key);
  EXPECT_TRUE(read_tls(certificate, key, certificate).on());
  const auto refusal = [](const std::string& its, const std::string& with,
                          const std::string& ca = "") {
    return error_of([&] { static_cast<void>(read_tls(its, with, ca)); });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(says(refusal(file("old.pem", self_signed(-100, -10).certificate), key), "expired"));
  EXPECT_TRUE(
      says(refusal(file("new.pem", self_signed(90, 99).certificate), key), "not valid yet"));
  EXPECT_TRUE(says(refusal(certificate, file("other.key", self_signed().key)), "not the key of"));
  EXPECT_TRUE(says(refusal(certificate, file("open.key", good.key, 0644)), "chmod 600"));
  EXPECT_TRUE(says(refusal(file("text.pem", "text"), key), "no certificate"));
  EXPECT_TRUE(says(refusal(certificate, file("text.key", "text")), "no key"));
  EXPECT_TRUE(says(refusal(folder_.file("none"), key), "cannot be read"));
  EXPECT_TRUE(says(refusal(certificate, key, file("ca.pem", "text")), "no certificate"));
}

TEST(Access, ATokenIsNeededWhole) {
  const Access access{false, {"another-token-0001", kToken}};
  const auto code = [&](Right right, const std::string& header) {
    return check_access(access, right, header).code;
  };
  EXPECT_EQ(code(Right::kProbe, ""), Code::kOk);
  EXPECT_EQ(code(Right::kUse, "Bearer " + kToken), Code::kOk);
  EXPECT_EQ(code(Right::kUse, "bearer another-token-0001"), Code::kOk);
  EXPECT_EQ(code(Right::kUse, "Bearer  " + kToken), Code::kOk) << "blanks are one or more";
  for (const std::string& bad :
       {std::string(), std::string("Bearer "), "Bearer " + kToken.substr(1),
        "Bearer " + kToken + "x", "Basic " + kToken, kToken}) {
    EXPECT_EQ(code(Right::kUse, bad), Code::kUnauthenticated) << bad;
  }
  EXPECT_EQ(code(Right::kControl, ""), Code::kUnauthenticated);
  EXPECT_EQ(code(Right::kControl, "Bearer " + kToken), Code::kPermissionDenied);
  EXPECT_EQ(check_access({true, {}}, Right::kControl, "").code, Code::kOk);
}

HttpServer::Options http_with(const Access& access) {
  HttpServer::Options options;
  options.access = access;
  return options;
}

TEST_F(HttpServerTest, TakesNoControlCallsWhereNoneAreWanted) {
  restart(http_with({false, {}}));
  for (const char* path :
       {"/v2/repository/models/echo/load", "/v2/repository/models/echo/unload", "/v2/scheduler"}) {
    EXPECT_EQ(ask(http_request("POST", path, R"({"policy":"FIFO"})")).status, 403) << path;
  }
  EXPECT_EQ(service_.scheduler(), "EDF");
  EXPECT_TRUE(service_.model_ready("echo", ""));
  EXPECT_EQ(ask(http_request("GET", "/v2/scheduler")).status, 200);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/index")).status, 200);
  EXPECT_EQ(infer("echo", echo_body()).status, 200);
}

TEST_F(HttpServerTest, NeedsATokenForAllButProbes) {
  restart(http_with({true, {kToken}}));
  const auto refused = infer("echo", echo_body());
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_TRUE(service_.announced().empty()) << "a gate was closed for a stranger";
  EXPECT_EQ(ask(http_request("GET", "/metrics")).status, 401);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/echo/ready")).status, 401);
  EXPECT_EQ(ask(http_request("GET", "/nothing")).status, 401) << "says what paths there are";
  EXPECT_EQ(ask(http_request("GET", "/v2/health/live")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/health/ready")).status, 200);
  const std::string header = "Authorization: Bearer " + kToken + "\r\n";
  EXPECT_EQ(ask(http_request("POST", kEcho, echo_body(), header)).status, 200);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/echo/unload", "", header)).status, 200);
}

TEST_F(HttpServerTest, ListensOnAUnixSocketOfItsUser) {
  const test::TempFolder folder;
  HttpServer::Options options;
  options.address = "unix:" + folder.file("control");
  restart(options);
  EXPECT_EQ(server_->port(), 0);
  struct stat about {};
  ASSERT_EQ(stat(folder.file("control").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0700U);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  folder.file("control/http").copy(address.sun_path, sizeof(address.sun_path) - 1);
  const base::Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = http_request("GET", "/v2/health/live");
  ASSERT_GT(send(client.get(), request.data(), request.size(), 0), 0);
  char reply[12];
  ASSERT_EQ(recv(client.get(), reply, sizeof(reply), MSG_WAITALL), 12);
  EXPECT_EQ(std::string(reply, sizeof(reply)), "HTTP/1.1 200");
  // Prevents: a second server takes the socket away from the first.
  EXPECT_THROW(HttpServer(service_, options), base::RunError);
  server_.reset();
  EXPECT_NE(lstat(address.sun_path, &about), 0) << "the socket is left";
}

/// A client of HTTP over TLS. certificate: its own; null for none.
class TlsClient {
 public:
  explicit TlsClient(int port, const test::Certificate* certificate = nullptr) {
    if (certificate != nullptr) use(*certificate);
    client_.reset(BIO_new_ssl_connect(context_.get()));
    BIO_set_conn_hostname(client_.get(), ("127.0.0.1:" + std::to_string(port)).c_str());
  }

  /// Lets the connection resume this session, or one of those that it holds.
  void resume(SSL_SESSION* session) {
    SSL* ssl = nullptr;
    BIO_get_ssl(client_.get(), &ssl);
    SSL_set_session(ssl, session);
  }
  [[nodiscard]] bool resumed() {
    SSL* ssl = nullptr;
    BIO_get_ssl(client_.get(), &ssl);
    return SSL_session_reused(ssl) == 1;
  }
  using Session = std::unique_ptr<SSL_SESSION, decltype(&SSL_SESSION_free)>;
  [[nodiscard]] Session session() {
    SSL* ssl = nullptr;
    BIO_get_ssl(client_.get(), &ssl);
    return {SSL_get1_session(ssl), SSL_SESSION_free};
  }
  /// TLS1_2_VERSION or TLS1_3_VERSION. Before the first ask().
  void speak(int version) {
    SSL* ssl = nullptr;
    BIO_get_ssl(client_.get(), &ssl);
    SSL_set_min_proto_version(ssl, version);
    SSL_set_max_proto_version(ssl, version);
  }

  /// The first line of the answer, or nothing.
  std::string ask(const std::string& request) {
    if (BIO_write(client_.get(), request.data(), static_cast<int>(request.size())) <= 0) return "";
    std::array<char, 4096> reply{};
    const int got = BIO_read(client_.get(), reply.data(), reply.size());
    const std::string text(reply.data(), static_cast<std::size_t>(std::max(got, 0)));
    return text.substr(0, text.find('\r'));
  }

 private:
  void use(const test::Certificate& own) {
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> in(
        BIO_new_mem_buf(own.certificate.data(), -1), BIO_free_all);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr), X509_free);
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> key_in(BIO_new_mem_buf(own.key.data(), -1),
                                                               BIO_free_all);
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        PEM_read_bio_PrivateKey(key_in.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
    SSL_CTX_use_certificate(context_.get(), certificate.get());
    SSL_CTX_use_PrivateKey(context_.get(), key.get());
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free};
  std::unique_ptr<BIO, decltype(&BIO_free_all)> client_{nullptr, BIO_free_all};
};

HttpServer::Options http_with_tls(const test::Certificate& made) {
  HttpServer::Options options;
  options.tls = {made.certificate, made.key, ""};
  return options;
}

TEST_F(HttpServerTest, SpeaksTls) {
  restart(http_with_tls(self_signed()));
  TlsClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    // Large: more than one TLS record.
    const std::string body = echo_body() + std::string(100'000, ' ');
    EXPECT_EQ(client.ask(http_request("POST", kEcho, body)), "HTTP/1.1 200 OK") << i;
  }
  auto plain = connect();
  plain.send(http_request("GET", "/v2"));
  EXPECT_FALSE(plain.reply()) << "answers without TLS";
}

// Prevents: clients that connect and say nothing hold the threads or the places of others.
TEST_F(HttpServerTest, AHandshakeThatStallsHoldsNobody) {
  HttpServer::Options options = http_with_tls(self_signed());
  options.threads = 1;
  options.progress_timeout = 3s;
  restart(options);
  auto silent = connect();
  auto half = connect();
  half.send(std::string("\x16\x03\x01\x02", 4));
  EXPECT_EQ(TlsClient(server_->port()).ask(http_request("GET", "/v2")), "HTTP/1.1 200 OK");
  EXPECT_TRUE(silent.closed(30s));
  EXPECT_TRUE(half.closed(30s));
}

// Prevents: --tls-client-ca is read, and everybody is served.
TEST_F(HttpServerTest, AClientNeedsACertificateIfAnAuthorityIsGiven) {
  const auto ours = self_signed();
  const auto others = self_signed();
  HttpServer::Options options = http_with_tls(self_signed());
  options.tls.client_ca = ours.certificate;
  restart(options);
  const std::string request = http_request("GET", "/v2");
  EXPECT_EQ(TlsClient(server_->port()).ask(request), "");
  EXPECT_EQ(TlsClient(server_->port(), &others).ask(request), "");
  EXPECT_EQ(TlsClient(server_->port(), &ours).ask(request), "HTTP/1.1 200 OK");
}

// Prevents: each second connection of a balancer, which resumes its sessions, is refused. The
// server knows the client of such a connection by the session.
TEST_F(HttpServerTest, AClientMayResumeItsSession) {
  const auto ours = self_signed();
  const std::string request = http_request("GET", "/v2");
  for (const bool with_authority : {false, true}) {
    HttpServer::Options options = http_with_tls(self_signed());
    if (with_authority) options.tls.client_ca = ours.certificate;
    restart(options);
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      TlsClient::Session session{nullptr, SSL_SESSION_free};
      for (int i = 0; i < 4; ++i) {
        TlsClient client(server_->port(), &ours);
        client.speak(version);
        if (session) client.resume(session.get());
        EXPECT_EQ(client.ask(request), "HTTP/1.1 200 OK") << with_authority << version << i;
        EXPECT_EQ(client.resumed(), i > 0) << with_authority << version << i;
        session = client.session();
      }
      // Sessions of a server before it was started again, or of another address, are no good.
      restart(options);
      TlsClient client(server_->port(), &ours);
      client.speak(version);
      client.resume(session.get());
      EXPECT_EQ(client.ask(request), "HTTP/1.1 200 OK") << with_authority << version;
      EXPECT_FALSE(client.resumed());
    }
  }
}

// Prevents: a page in a browser of this machine unloads the models.
TEST_F(HttpServerTest, TakesNoControlCallsFromWebPages) {
  const char* const unload = "/v2/repository/models/echo/unload";
  const std::string page = "Origin: https://example.com\r\n";
  EXPECT_EQ(ask(http_request("POST", unload, "", page)).status, 403);
  EXPECT_TRUE(service_.model_ready("echo", ""));
  EXPECT_EQ(ask(http_request("POST", kEcho, echo_body(), page)).status, 200);
  EXPECT_EQ(ask(http_request("POST", unload)).status, 200);
}

TEST_F(GrpcServerTest, TakesNoControlCallsWhereNoneAreWanted) {
  GrpcServer::Options options;
  options.access.control = false;
  restart(options);
  grpc::ClientContext load_context, unload_context, end, train, stop, schedule;
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("echo");
  inference::RepositoryModelLoadResponse loaded;
  EXPECT_EQ(stub_->RepositoryModelLoad(&load_context, load, &loaded).error_code(),
            StatusCode::PERMISSION_DENIED);
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("echo");
  inference::RepositoryModelUnloadResponse unloaded;
  EXPECT_EQ(stub_->RepositoryModelUnload(&unload_context, unload, &unloaded).error_code(),
            StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(service_.model_ready("echo", ""));
  colserve::EmptyRequest nothing;
  EXPECT_EQ(colserve_->Shutdown(&end, nothing, &nothing).error_code(),
            StatusCode::PERMISSION_DENIED);
  EXPECT_FALSE(service_.shutting_down());
  colserve::TrainResult result;
  EXPECT_EQ(colserve_->Train(&train, {}, &result).error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(colserve_->TrainStop(&stop, {}, &result).error_code(), StatusCode::PERMISSION_DENIED);
  colserve::SchedulerRequest policy;
  policy.set_name("FIFO");
  colserve::SchedulerResult chosen;
  EXPECT_EQ(colserve_->SetScheduler(&schedule, policy, &chosen).error_code(),
            StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(service_.scheduler(), "EDF");
  EXPECT_TRUE(infer(echo_request()).ok());
}

TEST_F(GrpcServerTest, NeedsATokenForAllButProbes) {
  GrpcServer::Options options;
  options.access.tokens = {kToken};
  restart(options);
  EXPECT_EQ(infer(echo_request()).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(service_.announced().empty());
  grpc::ClientContext described, probe, status, infers;
  inference::ServerMetadataResponse metadata;
  EXPECT_EQ(stub_->ServerMetadata(&described, {}, &metadata).error_code(),
            StatusCode::UNAUTHENTICATED);
  colserve::StatusResult shown;
  EXPECT_EQ(colserve_->Status(&status, {}, &shown).error_code(), StatusCode::UNAUTHENTICATED);
  colserve::InferResult inferred;
  EXPECT_EQ(colserve_->Inference(&infers, {}, &inferred).error_code(), StatusCode::UNAUTHENTICATED);
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(stub_->ServerReady(&probe, {}, &ready).ok());
  grpc::ClientContext with_token;
  with_token.AddMetadata("authorization", "Bearer " + kToken);
  EXPECT_TRUE(stub_->ModelInfer(&with_token, echo_request(), &response_).ok());
}

TEST_F(GrpcServerTest, SpeaksTls) {
  const auto made = self_signed();
  GrpcServer::Options options;
  options.tls = {made.certificate, made.key, ""};
  restart(options);
  EXPECT_FALSE(infer(echo_request()).ok()) << "answers without TLS";
  grpc::SslCredentialsOptions trusts;
  trusts.pem_root_certs = made.certificate;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                                 grpc::SslCredentials(trusts), arguments);
  grpc::ClientContext context;
  const auto status = inference::GRPCInferenceService::NewStub(channel)->ModelInfer(
      &context, echo_request(), &response_);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace sluice::server::api
