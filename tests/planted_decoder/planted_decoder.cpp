#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "darkroom/image/decoder_child.h"
#include "image/decoder_channel.h"

extern char** environ;  // POSIX declares it nowhere.

// darkroom-decoder with planted troubles, for tests/unit/image/sandbox_test.cpp. A picture that begins with "PLANT:NAME\n" makes the
// trouble of that name happen within the sandbox; what follows is decoded. What a plant has seen comes back as the detail of an error.
namespace darkroom {
namespace {

constexpr std::string_view kMark = "PLANT:";

RowError seen(std::string detail) { return {.code = RowErrorCode::kDecodeFailed, .detail = std::move(detail)}; }

// Until the process has had so much processor time.
void burn(long milliseconds) {
  timespec now{};
  do {
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while (now.tv_sec * 1000 + now.tv_nsec / 1'000'000 < milliseconds);
}

// What the compiler must believe that somebody else changes.
volatile bool is_true = true;

[[noreturn]] void spin() {
  while (is_true) {
  }
  std::abort();
}

[[noreturn]] void sleep_forever() {
  static uint32_t word = 0;
  for (;;) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
}

int overflow_stack(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return is_true ? overflow_stack(depth + 1) + frame[0] : 0;
}

[[noreturn]] void call_as_32_bit_program() {
#if defined(__x86_64__)
  long result = 20;  // getpid of the 32-bit table, writev of ours.
  asm volatile("int $0x80" : "+a"(result) : : "memory");
#endif
  _exit(static_cast<int>(getpid() != 0 ? 77 : 78));
}

// Calls of the kernel's own probes, which no filter sees (kernel/seccomp.c): from anywhere else they end the caller with SIGILL.
constexpr long kReturnProbe = 335;
constexpr long kProbe = 336;

// The numbers of all system calls that are not refused with EPERM, but for the eight that may be made whatever their arguments and
// mmap and mprotect.
std::string calls_that_pass() {
  constexpr std::array<long, 12> kMayPass = {SYS_futex, SYS_brk,        SYS_munmap, SYS_madvise,  SYS_clock_gettime, SYS_rt_sigreturn,
                                             SYS_exit,  SYS_exit_group, SYS_mmap,   SYS_mprotect, kReturnProbe,      kProbe};
  std::string passed;
  for (const long mode : {0L, 0x4000'0000L}) {  // x86-64's own numbers, those of its x32 mode.
    for (long call = 0; call < 600; ++call) {
      const bool may_pass = mode == 0 && std::ranges::find(kMayPass, call) != kMayPass.end();
      if (!may_pass && !(syscall(mode | call, 0, 0, 0, 0, 0, 0) == -1 && errno == EPERM)) {
        passed += fmt::format("{:#x} ", mode | call);
      }
    }
  }
  return passed;
}

// "open connect exec": what of it succeeded.
std::string deeds_done() {
  std::string done;
  const auto note = [&done](const char* deed, long result) { done += result < 0 ? "" : fmt::format("{} ", deed); };
  note("open", open("/etc/passwd", O_RDONLY));
  note("create", open("/tmp/darkroom-planted", O_WRONLY | O_CREAT, 0600));
  note("memfd", memfd_create("planted", 0));
  note("unlink", unlink("/tmp/darkroom-planted"));
  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  note("tcp", tcp);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* any_address = reinterpret_cast<const sockaddr*>(&address);
  note("connect", connect(tcp, any_address, sizeof(address)));
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  note("udp", udp);
  note("send", sendto(udp, "x", 1, 0, any_address, sizeof(address)));
  note("unix", socket(AF_UNIX, SOCK_STREAM, 0));
  std::array<int, 2> ends{};
  note("pipe", pipe(ends.data()));
  std::array<char*, 1> nothing = {nullptr};
  note("exec", execve("/bin/true", nothing.data(), nothing.data()));
  return done;
}

std::string executable_memory() {
  std::string had;
  void* fresh = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  had += fresh == MAP_FAILED ? "" : "mmap ";
  void* plain = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  had += plain != MAP_FAILED && mprotect(plain, 4096, PROT_READ | PROT_EXEC) == 0 ? "mprotect " : "";
  return had;
}

// MiB that malloc hands out, up to 1,000 where nothing bounds it, and gets back afterwards.
std::string memory_had() {
  constexpr size_t kPiece = size_t{1} << 20;
  constexpr int kMostPieces = 1000;
  void* last = nullptr;
  int num_pieces = 0;
  for (void* piece = nullptr; num_pieces < kMostPieces && (piece = std::malloc(kPiece)) != nullptr; ++num_pieces) {
    std::memset(piece, 1, kPiece);
    std::memcpy(piece, &last, sizeof(last));
    last = piece;
  }
  while (last != nullptr) {
    void* piece = last;
    std::memcpy(&last, piece, sizeof(last));
    std::free(piece);
  }
  return std::to_string(num_pieces);
}

class PlantedDecoder : public PictureDecoder {
 public:
  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    if (auto error = carry_out(bytes)) {
      return RowResult<ImageHeader>(*std::move(error));
    }
    return decoder_->check(bytes, limits);
  }
  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> out_hwc) override {
    if (auto error = carry_out(bytes)) {
      return RowResult<DecodedSize>(*std::move(error));
    }
    return decoder_->transform(bytes, options, limits, draw, out_hwc);
  }
  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> out_hwc) override {
    if (auto error = carry_out(bytes)) {
      return RowResult<DecodedSize>(*std::move(error));
    }
    return decoder_->resize_to(bytes, size, limits, out_hwc);
  }

 private:
  using Plant = std::function<std::optional<RowError>()>;

  // Takes the mark off the bytes; what they ask for may not return.
  std::optional<RowError> carry_out(std::span<const std::byte>& bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with(kMark)) {
      return std::nullopt;
    }
    const size_t end = text.find('\n');
    const std::string name(text.substr(kMark.size(), end - kMark.size()));
    bytes = bytes.subspan(end + 1);
    if (const auto plant = plants_.find(name); plant != plants_.end()) {
      return plant->second();
    }
    return answer_garbage(name);
  }

  // Answers in the place of serve_pictures and never comes back: its parent has to end it.
  RowError answer_garbage(const std::string& name) {
    const auto garbage = garbage_.find(name);
    if (garbage == garbage_.end()) {
      throw std::logic_error("no plant is called " + name);
    }
    ChannelHeader& header = channel_->header();
    const uint32_t turn = header.request_number.load();
    header.response = {.is_ok = 1, .width = 64, .height = 64};
    const uint32_t number = garbage->second(header.response, turn);
    header.response_number.store(number);
    wake_other_side(header.response_number);
    spin();
  }

  // Whatever of the shared header is not needed to answer.
  std::optional<RowError> scribble() {
    ChannelHeader& header = channel_->header();
    header.magic = header.version = 0xFFFFFFFF;
    header.header_bytes = header.input_capacity = header.output_capacity = ~uint64_t{0};
    header.limits = {~uint64_t{0}, ~uint64_t{0}};
    header.report = {-1, -1, -1, -1};
    return std::nullopt;
  }

  static constexpr uint32_t kOutOfPlace = 0x7FFFFFFF;

  using Garbage = std::function<uint32_t(DecoderResponse&, uint32_t turn)>;  // Gives the number to answer with.
  const std::map<std::string, Garbage> garbage_ = {
      {"ahead", [](DecoderResponse&, uint32_t turn) { return turn + 1; }},
      {"behind", [](DecoderResponse&, uint32_t turn) { return turn - 2; }},
      {"nowhere", [](DecoderResponse&, uint32_t) { return kOutOfPlace; }},
      {"success", [](DecoderResponse& r, uint32_t turn) { return r.is_ok = 7, turn; }},
      {"code", [](DecoderResponse& r, uint32_t turn) { return r.is_ok = 0, r.error_code = 999, turn; }},
      {"detail",
       [](DecoderResponse& r, uint32_t turn) {
         r = {.error_code = static_cast<uint32_t>(RowErrorCode::kBomb), .detail_bytes = 0xFFFFFFFF};
         return turn;
       }},
      {"width", [](DecoderResponse& r, uint32_t turn) { return r.width = 0, turn; }},
      {"height", [](DecoderResponse& r, uint32_t turn) { return r.height = -64, turn; }},
      {"pixels", [](DecoderResponse& r, uint32_t turn) { return r.width = r.height = 0x7FFFFFFF, turn; }},
      {"small", [](DecoderResponse& r, uint32_t turn) { return r.width = 31, turn; }},
      {"aspect", [](DecoderResponse& r, uint32_t turn) { return r.width = 64 * 64, turn; }},
      {"format", [](DecoderResponse& r, uint32_t turn) { return r.format = 200, turn; }},
      {"gif", [](DecoderResponse& r, uint32_t turn) { return r.format = static_cast<uint32_t>(ImageFormat::kGif), turn; }},
  };
  const std::map<std::string, Plant> plants_ = {
      {"crash",
       []() -> Plant::result_type {
         *static_cast<volatile int*>(nullptr) = 1;
         return {};
       }},
      {"abort", []() -> Plant::result_type { std::abort(); }},
      {"exit", []() -> Plant::result_type { _exit(0); }},
      {"stack", []() -> Plant::result_type { return seen(std::to_string(overflow_stack(0))); }},
      {"spin", []() -> Plant::result_type { spin(); }},
      {"sleep", []() -> Plant::result_type { sleep_forever(); }},
      {"burn", []() -> Plant::result_type { return burn(700), std::nullopt; }},
      {"burn_long", []() -> Plant::result_type { return burn(1300), std::nullopt; }},
      {"throw", []() -> Plant::result_type { throw std::runtime_error("planted"); }},
      {"bad_alloc",
       []() -> Plant::result_type {
         volatile size_t size = size_t{1} << 40;  // Or clang 14 makes the string while it compiles, and ends for want of memory.
         return seen(std::string(size, 'x'));
       }},
      {"memory", []() -> Plant::result_type { return seen(memory_had()); }},
      {"calls", []() -> Plant::result_type { return seen(calls_that_pass()); }},
      {"deeds", []() -> Plant::result_type { return seen(deeds_done()); }},
      {"execution", []() -> Plant::result_type { return seen(executable_memory()); }},
      {"32_bit", []() -> Plant::result_type { call_as_32_bit_program(); }},
      {"environment", []() -> Plant::result_type { return seen(environ[0] == nullptr ? "" : environ[0]); }},
      {"escapes",
       []() -> Plant::result_type {
         return seen(
             "a\x1b[2Jb\xFF\xC2\x9B"
             "c");
       }},
      {"foreign_code", []() -> Plant::result_type { return RowError{.code = RowErrorCode::kOptedOut, .detail = ""}; }},
      {"scribble", [this] { return scribble(); }},
  };
  const std::unique_ptr<PictureDecoder> decoder_ = decoder_in_process();
  // Another view of what serve_pictures uses, mapped while that is possible.
  const std::optional<DecoderChannel> channel_ = DecoderChannel::open(kChannelDescriptor);
};

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  darkroom::PlantedDecoder decoder;
  return darkroom::serve_pictures(argc, argv, decoder);
}
