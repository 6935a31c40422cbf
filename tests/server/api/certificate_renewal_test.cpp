// Prevents: a certificate that was renewed on disk is served only after a restart, and a renewal
// that ends the connections or the calls of clients.
#include <openssl/ssl.h>

#include <atomic>
#include <thread>

#include "certificates.hpp"
#include "grpc_server_test.hpp"
#include "http_server_test.hpp"

namespace sluice::server::api {
namespace {

/// A TLS connection to this machine.
class TlsConnection {
 public:
  explicit TlsConnection(int port) {
    const std::string both = "\x2h2\x8http/1.1";  // gRPC needs the first one
    SSL_CTX_set_alpn_protos(context_.get(), reinterpret_cast<const unsigned char*>(both.data()),
                            static_cast<unsigned>(both.size()));
    connection_.reset(BIO_new_ssl_connect(context_.get()));
    BIO_set_conn_hostname(connection_.get(), ("127.0.0.1:" + std::to_string(port)).c_str());
    if (BIO_do_connect(connection_.get()) > 0) BIO_do_handshake(connection_.get());
  }

  /// The certificate of the server, PEM; empty without a connection.
  std::string certificate() {
    SSL* ssl = nullptr;
    BIO_get_ssl(connection_.get(), &ssl);
    const std::unique_ptr<X509, decltype(&X509_free)> its(SSL_get1_peer_certificate(ssl),
                                                          X509_free);
    if (!its) return "";
    return test::pem([&](BIO* out) { PEM_write_bio_X509(out, its.get()); });
  }
  bool answers() {
    const std::string request = test::http_request("GET", "/v2/health/live");
    std::string reply(4096, ' ');  // all of it, so that nothing is left for the next one
    return BIO_write(connection_.get(), request.data(), static_cast<int>(request.size())) > 0 &&
           BIO_read(connection_.get(), reply.data(), static_cast<int>(reply.size())) > 0 &&
           reply.starts_with("HTTP/1.1 200");
  }

 private:
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free};
  std::unique_ptr<BIO, decltype(&BIO_free_all)> connection_{nullptr, BIO_free_all};
};

Tls tls_of(const test::Certificate& made) { return {made.certificate, made.key, ""}; }

template <class Server>
class CertificateRenewal : public testing::Test {
 protected:
  CertificateRenewal() {
    typename Server::Options options;
    options.tls = tls_of(first_);
    server_.emplace(service_, options);
  }
  std::string certificate() { return TlsConnection(server_->port()).certificate(); }

  const test::Certificate first_ = test::self_signed();
  const test::Certificate second_ = test::self_signed();
  test::FakeService service_{100'000'000};
  std::optional<Server> server_;
};
using Servers = testing::Types<HttpServer, GrpcServer>;
TYPED_TEST_SUITE(CertificateRenewal, Servers);

TYPED_TEST(CertificateRenewal, IsForTheNextConnection) {
  EXPECT_EQ(this->certificate(), this->first_.certificate);
  for (int i = 0; i < 3; ++i) {
    this->server_->set_tls(tls_of(this->second_));
    EXPECT_EQ(this->certificate(), this->second_.certificate);
    EXPECT_EQ(this->certificate(), this->second_.certificate) << "and for all that follow";
    this->server_->set_tls(tls_of(this->first_));
    EXPECT_EQ(this->certificate(), this->first_.certificate);
  }
}

// Prevents: a handshake at that moment gets parts of both, or uses what was freed.
TYPED_TEST(CertificateRenewal, HandshakesMeanwhileGetOneOrTheOther) {
  std::atomic<bool> over = false;
  std::thread renews([&] {
    for (int i = 0; !over; ++i) {
      this->server_->set_tls(tls_of(i % 2 == 0 ? this->second_ : this->first_));
    }
  });
  for (int i = 0; i < 100; ++i) {
    const std::string found = this->certificate();
    EXPECT_TRUE(found == this->first_.certificate || found == this->second_.certificate) << found;
  }
  over = true;
  renews.join();
}

using HttpRenewal = CertificateRenewal<HttpServer>;

TEST_F(HttpRenewal, LeavesOpenConnections) {
  TlsConnection open(server_->port());
  EXPECT_TRUE(open.answers());
  for (int i = 0; i < 3; ++i) {
    server_->set_tls(tls_of(second_));
    EXPECT_EQ(certificate(), second_.certificate);
    EXPECT_TRUE(open.answers());
  }
}

TEST_F(HttpRenewal, ACertificateThatOpensslRefusesChangesNothing) {
  EXPECT_ANY_THROW(server_->set_tls({second_.certificate, "no key", ""}));
  EXPECT_EQ(certificate(), first_.certificate);
}

using GrpcRenewal = CertificateRenewal<GrpcServer>;

TEST_F(GrpcRenewal, LeavesOpenConnections) {
  const auto channel = [&](const test::Certificate& trusted) {
    grpc::SslCredentialsOptions trusts;
    trusts.pem_root_certs = trusted.certificate;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("localhost");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                     grpc::SslCredentials(trusts), arguments);
  };
  const auto ask = [](const std::shared_ptr<grpc::Channel>& with) {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    return inference::GRPCInferenceService::NewStub(with)->ModelInfer(&context, echo_request(),
                                                                      &response);
  };
  const auto open = channel(first_);
  EXPECT_TRUE(ask(open).ok());
  server_->set_tls(tls_of(second_));
  EXPECT_TRUE(ask(channel(second_)).ok());
  EXPECT_TRUE(ask(open).ok());
  EXPECT_FALSE(ask(channel(first_)).ok());
}

}  // namespace
}  // namespace sluice::server::api
