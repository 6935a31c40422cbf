// The addresses at which the protocols listen. Prevents: a server that its clients do not find, and
// one that takes the socket, or a file, of somebody else.
#include "server/api/address.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "support/temp_folder.hpp"

namespace sluice::server::api {
namespace {

std::string fault(const std::string& text) {
  try {
    (void)resolve_address(text, "http");
  } catch (const base::RunError& error) {
    return error.what();
  }
  return "no fault";
}

TEST(Address, AnIpAddressStaysAndLocalhostIsIpv4) {
  EXPECT_EQ(resolve_address("127.0.0.1", "http"), "127.0.0.1");
  EXPECT_EQ(resolve_address("localhost", "http"), "127.0.0.1");
  EXPECT_EQ(resolve_address("0.0.0.0", "http"), "0.0.0.0");
  EXPECT_EQ(resolve_address("::1", "http"), "::1");
  EXPECT_EQ(resolve_address("[::1]", "http"), "::1");
  // No name server is asked for a name of this length.
  const std::string none(300, 'x');
  EXPECT_TRUE(fault(none).starts_with("cannot listen on " + none + ": "));
}

TEST(Address, EndpointsHaveTheirForm) {
  EXPECT_EQ(endpoint_text("127.0.0.1", 80), "127.0.0.1:80");
  EXPECT_EQ(endpoint_text("::1", 80), "[::1]:80");
  EXPECT_EQ(endpoint_text("unix:/a/http", 0), "unix:/a/http");
  EXPECT_TRUE(is_unix("unix:/a/http"));
  EXPECT_FALSE(is_unix("127.0.0.1"));
}

TEST(Address, AUnixAddressMakesItsFolder) {
  const test::TempFolder temp;
  const std::string folder = temp.file("control");
  EXPECT_EQ(resolve_address("unix:" + folder, "http"), "unix:" + folder + "/http");
  struct stat about {};
  ASSERT_EQ(stat(folder.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0700U);
  EXPECT_EQ(resolve_address("unix:" + folder, "http"), "unix:" + folder + "/http");
}

TEST(Address, WrongUnixAddressesSayWhy) {
  const test::TempFolder temp;
  EXPECT_EQ(fault("unix:"), "cannot listen on unix:: expected unix:FOLDER");
  const std::string deep = "unix:" + temp.file("none/control");
  EXPECT_EQ(fault(deep), "cannot listen on " + deep + ": No such file or directory");
  // With the terminating zero, a path of 107 characters is the longest.
  const std::string folder(102 - temp.file("").size(), 'x');
  EXPECT_EQ(fault("unix:" + temp.file(folder)), "no fault");
  const std::string longer = "unix:" + temp.file(folder + "x");
  EXPECT_EQ(fault(longer), "cannot listen on " + longer + ": the path is too long for a socket");
  const std::string file = temp.write("http", "precious");
  EXPECT_EQ(fault("unix:" + temp.path().string()), "cannot listen on unix:" + temp.path().string() +
                                                       ": " + file + " exists and is not a socket");
  EXPECT_EQ(test::read_file(file), "precious");
}

TEST(Address, ASocketIsTakenOnlyFromAServerThatIsGone) {
  const test::TempFolder temp;
  const std::string text = "unix:" + temp.path().string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  temp.file("http").copy(address.sun_path, sizeof(address.sun_path) - 1);
  base::Fd server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(server.get(), 1), 0);
  EXPECT_EQ(fault(text),
            "cannot listen on " + text + ": " + temp.file("http") + " is in use by another server");
  EXPECT_TRUE(std::filesystem::exists(temp.file("http")));
  server.reset();
  EXPECT_EQ(fault(text), "no fault");
  EXPECT_FALSE(std::filesystem::exists(temp.file("http")));
}

TEST(Address, OnlyAUnixSocketChangesTheMode) {
  auto mask = [] {
    const mode_t now = umask(0);
    umask(now);
    return now;
  };
  const mode_t before = mask();
  {
    const SocketMode mode("unix:/a/http");
    EXPECT_EQ(mask(), 0117U);
  }
  EXPECT_EQ(mask(), before);
  const SocketMode mode("127.0.0.1");
  EXPECT_EQ(mask(), before);
}

}  // namespace
}  // namespace sluice::server::api
