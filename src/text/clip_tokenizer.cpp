#include "darkroom/text/clip_tokenizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "byte_pair.h"
#include "caption_cleaning.h"
#include "darkroom/core/check.h"
#include "darkroom/core/sha256.h"
#include "darkroom/core/utf8.h"
#include "tokenizer_folder.h"
#include "whole_words.h"
#include "word_cache.h"
#include "word_splitter.h"

namespace darkroom {
namespace {

constexpr int kAlgorithmVersion = 1;  // Counts changes of ids for the same folder; part of the fingerprint.
constexpr std::string_view kOpenClipStart = "<start_of_text>";
constexpr std::string_view kOpenClipEnd = "<end_of_text>";
// Where "s" is asked for, the case-insensitive expression also takes the long s.
constexpr std::string_view kLongSContraction = "'\u017F";
constexpr std::string_view kLongSStart = "<\u017Ftart_of_text>";
constexpr int32_t kOpenClipPadId = 0;

// Special tokens that are looked for at one of the two moments.
class SpecialFinder {
 public:
  void add(const SpecialToken& token) {
    tokens_.push_back(token);
    may_start_[static_cast<unsigned char>(token.content.front())] = true;
  }

  // The leftmost, then longest one in `text`: its place and itself; text.size() and null when there is none.
  std::pair<size_t, const SpecialToken*> find(std::string_view text) const {
    for (size_t at = 0; !tokens_.empty() && at < text.size(); ++at) {
      if (!may_start_[static_cast<unsigned char>(text[at])]) {
        continue;
      }
      const SpecialToken* longest = nullptr;
      for (const SpecialToken& token : tokens_) {
        const bool is_here = text.substr(at).starts_with(token.content);
        if (is_here && (!longest || token.content.size() > longest->content.size())) {
          longest = &token;
        }
      }
      if (longest) {
        return {at, longest};
      }
    }
    return {text.size(), nullptr};
  }

 private:
  std::vector<SpecialToken> tokens_;
  std::array<bool, 256> may_start_{};
};

// Fills the ids from the front and keeps the last place for the end token.
class IdWriter {
 public:
  static constexpr size_t kMostIds = ClipTokenizer::kContextLength;
  explicit IdWriter(std::span<int32_t> ids) : ids_(ids) {}
  bool is_full() const { return num_written_ + 1 >= ids_.size(); }
  void add(int32_t id) {
    if (!is_full()) {
      ids_[num_written_++] = id;
    }
  }
  void finish(int32_t end_id, int32_t pad_id) {
    ids_[num_written_++] = end_id;
    std::fill(ids_.begin() + static_cast<std::ptrdiff_t>(num_written_), ids_.end(), pad_id);
  }

 private:
  std::span<int32_t> ids_;
  size_t num_written_ = 0;
};

// Takes every id.
struct IdList {
  static constexpr size_t kMostIds = SIZE_MAX;
  bool is_full() const { return false; }
  void add(int32_t id) { ids.push_back(id); }
  std::vector<int32_t> ids;
};

// Buffers that one thread uses for every caption, so that encoding allocates nothing once they have grown.
struct Scratch {
  std::string clean;
  BytePairEncoder::Workspace workspace;
  WordCache words;
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

uint32_t next_tokenizer_number() {
  static std::atomic<uint32_t> count{0};
  return ++count;
}

std::string compute_fingerprint(const TokenizerFolder& folder, TokenizerDialect dialect) {
  Sha256 hash;
  const auto add = [&](std::string_view text) {
    hash.update(std::to_string(text.size()) + ":");
    hash.update(text);
  };
  add("darkroom.text " + std::to_string(kAlgorithmVersion));
  add(tokenizer_dialect_name(dialect));
  for (const std::string& token : folder.vocabulary.tokens()) {
    add(token);
  }
  add("merges");
  for (const std::string& merge : folder.vocabulary.merges()) {
    add(merge);
  }
  for (const int32_t id : {folder.start_id, folder.end_id, folder.pad_id, folder.unknown_id}) {
    add(std::to_string(id));
  }
  for (const SpecialToken& token : folder.special_tokens) {
    add(token.content + (token.is_normalized ? " clean" : " raw"));
  }
  return hash.finish_hex();
}

}  // namespace

std::string_view tokenizer_dialect_name(TokenizerDialect dialect) { return dialect == TokenizerDialect::kHuggingFace ? "hf" : "open_clip"; }

Result<TokenizerDialect> parse_tokenizer_dialect(std::string_view name) {
  for (const auto dialect : {TokenizerDialect::kHuggingFace, TokenizerDialect::kOpenClip}) {
    if (name == tokenizer_dialect_name(dialect)) {
      return dialect;
    }
  }
  return Status::invalid_argument("the tokenizer dialect must be hf or open_clip:", name);
}

std::string_view unported_name(Unported unported) {
  switch (unported) {
    case Unported::kNothing:
      return "nothing";
    case Unported::kMojibake:
      return "mojibake";
    case Unported::kNewCharacter:
      return "new_character";
  }
  DARKROOM_CHECK(false, "a value outside its enumeration:", static_cast<int>(unported));
}

struct ClipTokenizer::State {
  State(TokenizerFolder contents, TokenizerDialect the_dialect)
      : folder(std::move(contents)),
        dialect(the_dialect),
        encoder(folder.vocabulary, folder.unknown_id,
                dialect == TokenizerDialect::kHuggingFace ? MergeOrder::kOneAtATime : MergeOrder::kAllOccurrences),
        whole_words(folder.vocabulary, encoder),
        fingerprint(compute_fingerprint(folder, dialect)) {
    for (const SpecialToken& token : folder.special_tokens) {
      (token.is_normalized ? clean_specials : raw_specials).add(token);
    }
  }

  template <typename Writer>
  void encode_word(std::string_view word, Writer& out) const {
    const WordHash hash = hash_word(word);
    if (const int32_t id = whole_words.find(word, hash); id >= 0) {
      out.add(id);
      return;
    }
    Scratch& scratch = thread_scratch();
    std::span<const int32_t> ids = scratch.words.find(number, word, hash.hash);
    if (ids.empty()) {
      encoder.encode(word, scratch.workspace, Writer::kMostIds);
      ids = scratch.workspace.ids;
      scratch.words.store(number, word, hash.hash, ids);
    }
    for (const int32_t id : ids) {
      out.add(id);
    }
  }

  template <typename Writer>
  void encode_words(std::string_view text, Writer& out) const {
    for (skip_spaces(text); !text.empty() && !out.is_full(); skip_spaces(text)) {
      encode_word(take_word(text), out);
    }
  }

  template <typename Writer>
  Unported encode_caption(std::string_view caption, Writer& out) const {
    if (dialect == TokenizerDialect::kHuggingFace) {
      encode_hugging_face(caption, out);
      return Unported::kNothing;
    }
    return encode_open_clip(caption, out);
  }

  // Special tokens first in the caption as it came, then in each cleaned piece, as the package tokenizers does.
  template <typename Writer>
  void encode_hugging_face(std::string_view caption, Writer& out) const {
    while (!caption.empty() && !out.is_full()) {
      const auto [raw_at, raw_special] = raw_specials.find(caption);
      std::string& clean = thread_scratch().clean;
      clean_hugging_face(caption.substr(0, raw_at), clean);
      for (std::string_view text = clean; !text.empty() && !out.is_full();) {
        const auto [at, special] = clean_specials.find(text);
        encode_words(text.substr(0, at), out);
        if (special) {
          out.add(special->id);
        }
        text.remove_prefix(at + (special ? special->content.size() : 0));
      }
      if (raw_special) {
        out.add(raw_special->id);
      }
      caption.remove_prefix(raw_at + (raw_special ? raw_special->content.size() : 0));
    }
  }

  // Special tokens count only where a word would start, because there they are an alternative of the expression.
  template <typename Writer>
  Unported encode_open_clip(std::string_view caption, Writer& out) const {
    std::string& clean = thread_scratch().clean;
    const Unported unported = clean_open_clip(caption, clean);
    std::string_view text = clean;
    for (skip_spaces(text); !text.empty() && !out.is_full(); skip_spaces(text)) {
      if (text.starts_with(kOpenClipStart)) {
        out.add(folder.start_id);
        text.remove_prefix(kOpenClipStart.size());
      } else if (text.starts_with(kOpenClipEnd)) {
        out.add(folder.end_id);
        text.remove_prefix(kOpenClipEnd.size());
      } else {
        encode_word(take_open_clip_word(text), out);
      }
    }
    return unported;
  }

  static std::string_view take_open_clip_word(std::string_view& text) {
    for (const std::string_view word : {kLongSContraction, kLongSStart}) {
      if (text.starts_with(word)) {
        text.remove_prefix(word.size());
        return word;
      }
    }
    return take_word(text);
  }

  TokenizerFolder folder;
  TokenizerDialect dialect;
  BytePairEncoder encoder;
  WholeWords whole_words;
  SpecialFinder raw_specials;
  SpecialFinder clean_specials;
  std::string fingerprint;
  uint32_t number = next_tokenizer_number();  // Unlike any other's of this process: whose words are whose in a thread's cache.
};

ClipTokenizer::ClipTokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClipTokenizer::~ClipTokenizer() = default;

Result<std::unique_ptr<ClipTokenizer>> ClipTokenizer::load(FileSystem& files, const std::string& folder, TokenizerDialect dialect) {
  DARKROOM_ASSIGN_OR_RETURN(TokenizerFolder contents, read_tokenizer_folder(files, folder));
  return std::unique_ptr<ClipTokenizer>(new ClipTokenizer(std::make_unique<State>(std::move(contents), dialect)));
}

Unported ClipTokenizer::encode(std::string_view caption, std::span<int32_t> ids) const {
  DARKROOM_CHECK(ids.size() == kContextLength, "encode needs room for the whole context (got):", ids.size());
  IdWriter out(ids);
  out.add(state_->folder.start_id);
  const Unported unported = state_->encode_caption(caption, out);
  out.finish(state_->folder.end_id, pad_id());
  return unported;
}

void ClipTokenizer::encode_batch(std::span<const std::string_view> captions, int num_threads, std::span<int32_t> ids,
                                 std::span<Unported> unported) const {
  DARKROOM_CHECK(ids.size() == captions.size() * kContextLength && unported.size() == captions.size() && num_threads >= 1,
                 "encode_batch needs room for every caption (captions, ids, unported, threads):", captions.size(), ids.size(),
                 unported.size(), num_threads);
  constexpr size_t kStep = 64;
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;  // The first one; guarded by mutex.
  const auto work = [&] {
    try {
      for (size_t begin = next.fetch_add(kStep); begin < captions.size(); begin = next.fetch_add(kStep)) {
        for (size_t i = begin; i < std::min(begin + kStep, captions.size()); ++i) {
          unported[i] = encode(captions[i], ids.subspan(i * kContextLength, kContextLength));
        }
      }
    } catch (...) {
      const std::lock_guard hold(mutex);
      failure = failure ? failure : std::current_exception();
    }
  };
  {
    const size_t useful = std::min<size_t>(static_cast<size_t>(num_threads), (captions.size() + kStep - 1) / kStep);
    std::vector<std::jthread> others;
    try {
      for (size_t i = 1; i < useful; ++i) {
        others.emplace_back(work);
      }
    } catch (const std::system_error&) {
      // No more threads are to be had: those that run, at least this one, do it all.
    }
    work();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

std::vector<int32_t> ClipTokenizer::encode_all(std::string_view caption) const {
  IdList out;
  state_->encode_caption(caption, out);
  return std::move(out.ids);
}

std::string ClipTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    std::string_view token = state_->folder.vocabulary.tokens()[static_cast<size_t>(id)];
    const bool ends_word = token.ends_with(kEndOfWord);
    if (ends_word) {
      token.remove_suffix(kEndOfWord.size());
    }
    const auto bytes = token_bytes(token);
    text += bytes.has_value() ? *bytes : std::string(token);
    text += ends_word ? " " : "";
  }
  if (text.ends_with(' ')) {
    text.pop_back();
  }
  return replace_invalid_utf8(text).first;  // A cut may lie within a character.
}

TokenizerDialect ClipTokenizer::dialect() const { return state_->dialect; }

int ClipTokenizer::vocabulary_size() const { return static_cast<int>(state_->folder.vocabulary.tokens().size()); }

int32_t ClipTokenizer::start_id() const { return state_->folder.start_id; }

int32_t ClipTokenizer::end_id() const { return state_->folder.end_id; }

std::optional<int32_t> ClipTokenizer::find_token(std::string_view token) const { return state_->folder.vocabulary.find(token); }

int32_t ClipTokenizer::pad_id() const { return state_->dialect == TokenizerDialect::kHuggingFace ? state_->folder.pad_id : kOpenClipPadId; }

const std::string& ClipTokenizer::fingerprint() const { return state_->fingerprint; }

Status ClipTokenizer::save(FileSystem& files, const std::string& folder) const {
  return write_tokenizer_folder(files, folder, state_->folder);
}

}  // namespace darkroom
