#include "server/api/access.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "base/error.hpp"
#include "base/trimmed.hpp"

namespace sluice::server::api {
namespace {

using base::UsageError;

constexpr std::string_view kScheme = "bearer";

/// Takes the same time wherever the two differ.
bool same(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

bool has_token(const std::vector<std::string>& tokens, std::string_view authorization) {
  if (authorization.size() <= kScheme.size() || authorization[kScheme.size()] != ' ') return false;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return false;
  }
  // One blank or more (RFC 6750, 2.1).
  const std::string_view given = base::trimmed(authorization.substr(kScheme.size()));
  bool found = false;
  for (const std::string& token : tokens) found |= same(token, given);
  return found;
}

/// Whole file. what: the option that names it.
std::string read_file(std::string_view what, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    throw UsageError(fmt::format("{} {}: cannot be read, or is empty", what, file));
  }
  return text.str();
}

void check_private(std::string_view what, const std::string& file) {
  struct stat about {};
  if (stat(file.c_str(), &about) != 0) return;  // Reading it says why.
  constexpr mode_t kOthers = S_IRWXO | S_IWGRP;
  if ((about.st_mode & kOthers) != 0) {
    throw UsageError(fmt::format("{} {}: others may read or write it (mode {:03o}); chmod 600 {}",
                                 what, file, about.st_mode & 0777U, file));
  }
}

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

std::unique_ptr<BIO, Free> reader(const std::string& text) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// A key with a passphrase cannot be used: nobody is there to type it.
int no_passphrase(char* /*buffer*/, int /*size*/, int /*write*/, void* /*data*/) { return 0; }

std::unique_ptr<X509, Free> certificate_in(std::string_view what, const std::string& file,
                                           const std::string& text) {
  std::unique_ptr<X509, Free> found(
      PEM_read_bio_X509(reader(text).get(), nullptr, no_passphrase, nullptr));
  if (!found) throw UsageError(fmt::format("{} {}: holds no certificate (PEM)", what, file));
  if (X509_cmp_current_time(X509_get0_notAfter(found.get())) < 0) {
    throw UsageError(fmt::format("{} {}: the certificate has expired", what, file));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(found.get())) > 0) {
    throw UsageError(fmt::format("{} {}: the certificate is not valid yet", what, file));
  }
  return found;
}

}  // namespace

Status check_access(const Access& access, Right right, std::string_view authorization) {
  if (right == Right::kProbe) return {};
  if (!access.tokens.empty() && !has_token(access.tokens, authorization)) {
    return {Code::kUnauthenticated, "this call needs a token: Authorization: Bearer TOKEN"};
  }
  if (right == Right::kControl && !access.control) {
    return {Code::kPermissionDenied,
            "this address takes no control calls; the server takes them at its --control address, "
            "or here with --allow-control"};
  }
  return {};
}

std::vector<std::string> read_tokens(const std::string& file) {
  constexpr std::string_view kWhat = "token file";
  check_private(kWhat, file);
  std::string text = read_file(kWhat, file);
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of editors on Windows
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::istringstream in(text);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(in, line);) {
    const std::string_view token = base::trimmed(line);
    if (token.empty() || token.front() == '#') continue;
    tokens.emplace_back(token);
    constexpr std::size_t kShortest = 16;
    if (tokens.back().size() < kShortest) {
      throw UsageError(fmt::format("{} {}: a token has {} characters, at least {} are needed",
                                   kWhat, file, tokens.back().size(), kShortest));
    }
    // HTTP takes 16 KiB of headers.
    constexpr std::size_t kLongest = 12 << 10;
    if (tokens.back().size() > kLongest) {
      throw UsageError(fmt::format("{} {}: a token has {} characters, at most {} fit into headers",
                                   kWhat, file, tokens.back().size(), kLongest));
    }
  }
  if (tokens.empty()) throw UsageError(fmt::format("{} {}: holds no token", kWhat, file));
  return tokens;
}

Tls read_tls(const std::string& certificate, const std::string& key, const std::string& client_ca) {
  Tls tls;
  tls.certificate = read_file("--tls-cert", certificate);
  const auto found = certificate_in("--tls-cert", certificate, tls.certificate);
  check_private("--tls-key", key);
  tls.key = read_file("--tls-key", key);
  const std::unique_ptr<EVP_PKEY, Free> private_key(
      PEM_read_bio_PrivateKey(reader(tls.key).get(), nullptr, no_passphrase, nullptr));
  if (!private_key) {
    throw UsageError(fmt::format("--tls-key {}: holds no key without a passphrase (PEM)", key));
  }
  if (X509_check_private_key(found.get(), private_key.get()) != 1) {
    throw UsageError(fmt::format("--tls-key {}: is not the key of {}", key, certificate));
  }
  if (!client_ca.empty()) {
    tls.client_ca = read_file("--tls-client-ca", client_ca);
    static_cast<void>(certificate_in("--tls-client-ca", client_ca, tls.client_ca));
  }
  return tls;
}

}  // namespace sluice::server::api
