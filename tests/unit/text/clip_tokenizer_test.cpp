#include "darkroom/text/clip_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "darkroom/core/check.h"
#include "support/no_new_threads.h"
#include "tiny_tokenizer.h"

namespace darkroom {
namespace {

const ClipTokenizer& hf() { return tiny_tokenizer(TokenizerDialect::kHuggingFace); }
const ClipTokenizer& open_clip() { return tiny_tokenizer(TokenizerDialect::kOpenClip); }

// data.md section 5: transformers #22166, #19118; diffusers #4153.
TEST(ClipTokenizer, gives_the_published_vectors) {
  EXPECT_EQ(encode(hf(), "You should've done this"), padded({592, 1535, 1200, 1700, 589}));
  EXPECT_EQ(encode(hf(), "r\u00e9sum\u00e9"), padded({29106, 7054, 4166}));
  EXPECT_EQ(encode(hf(), "! !! !!!"), padded({0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(encode(open_clip(), "! !! !!!"), padded({256, 748, 995}));
}

TEST(ClipTokenizer, an_empty_caption_is_start_end_and_padding) {
  for (const char* caption : {"", " ", "\t\r\n \u3000"}) {
    EXPECT_EQ(encode(hf(), caption), padded({}));
    EXPECT_EQ(encode(open_clip(), caption), padded({}));
  }
}

TEST(ClipTokenizer, cuts_a_long_caption_so_that_end_is_the_last_id) {
  for (const int num_words : {74, 75, 76, 1000}) {
    std::string caption;
    for (int i = 0; i < num_words; ++i) {
      caption += "a ";
    }
    const std::vector<int32_t> ids = encode(hf(), caption);
    EXPECT_EQ(ids[std::min(num_words, 75) + 1], 49407) << num_words;
    EXPECT_EQ(ids[75], num_words < 75 ? 49407 : 320) << num_words;
    EXPECT_EQ(ids, encode(open_clip(), caption));
  }
}

TEST(ClipTokenizer, cuts_within_a_word) {
  const std::string caption = std::string(200, '1') + "x";
  EXPECT_EQ(encode(hf(), caption)[76], 49407);
  EXPECT_NE(encode(hf(), std::string(2000, 'z'))[75], 49407);
}

TEST(ClipTokenizer, special_token_literals_become_their_ids) {
  EXPECT_EQ(encode(hf(), "a<|endoftext|>B<|STARTOFTEXT|>"), padded({320, 49407, 321, 49406}));
  EXPECT_EQ(encode(open_clip(), "<start_of_text> <END_OF_TEXT>"), padded({49406, 49407}));
  EXPECT_EQ(encode(open_clip(), "<start_of_text>"), encode(open_clip(), "&lt;start_of_text&gt;"));
}

TEST(ClipTokenizer, ill_formed_utf8_counts_as_replacement_characters) {
  for (const ClipTokenizer* tokenizer : {&hf(), &open_clip()}) {
    EXPECT_EQ(encode(*tokenizer, "a\xFF b"), encode(*tokenizer, "a\uFFFD b"));
    EXPECT_EQ(encode(*tokenizer, "cut \xF0\x9F\x91"), encode(*tokenizer, "cut \uFFFD"));
    EXPECT_EQ(encode(*tokenizer, "\xED\xA0\x80"), encode(*tokenizer, "\uFFFD\uFFFD\uFFFD"));
    EXPECT_EQ(encode(*tokenizer, "\xC0\xAF"), encode(*tokenizer, "\uFFFD\uFFFD"));
  }
}

TEST(ClipTokenizer, a_megabyte_without_spaces_ends_in_time) {
  const std::string caption(1 << 20, 'q');
  EXPECT_EQ(encode(hf(), caption)[76], 49407);
  EXPECT_EQ(encode(open_clip(), caption)[76], 49407);
}

TEST(ClipTokenizer, threads_share_one_tokenizer) {
  const std::vector<std::string> captions = {"grinning face", "flag: France", "zqx 1234 caf\u00e9 don't", "!! \U0001F600"};
  std::vector<std::vector<int32_t>> want;
  for (const std::string& caption : captions) {
    want.push_back(encode(hf(), caption));
  }
  std::vector<int> num_wrong(4);
  {
    std::vector<std::jthread> threads;
    for (int& wrong : num_wrong) {
      threads.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {
          wrong += encode(hf(), captions[i % 4]) != want[i % 4];
        }
      });
    }
  }
  EXPECT_EQ(num_wrong, std::vector<int>(4));
}

TEST(ClipTokenizer, a_batch_gives_the_same_for_any_number_of_threads) {
  std::vector<std::string> captions;
  for (int i = 0; i < 1000; ++i) {
    captions.push_back(i % 7 == 0 ? "schÃ¶n" : fmt::format("zqx{} caf\u00e9 {}", i % 50, std::string(static_cast<size_t>(i % 40), 'q')));
  }
  const std::vector<std::string_view> views(captions.begin(), captions.end());
  std::vector<int32_t> want;
  for (const std::string& caption : captions) {
    const std::vector<int32_t> ids = encode(open_clip(), caption);
    want.insert(want.end(), ids.begin(), ids.end());
  }
  for (const int num_threads : {1, 2, 5, 100}) {
    std::vector<int32_t> ids(want.size());
    std::vector<Unported> unported(captions.size());
    open_clip().encode_batch(views, num_threads, ids, unported);
    EXPECT_EQ(ids, want) << num_threads;
    for (size_t i = 0; i < captions.size(); ++i) {
      EXPECT_EQ(unported[i], i % 7 == 0 ? Unported::kMojibake : Unported::kNothing) << i;
    }
  }
  open_clip().encode_batch({}, 3, {}, {});
  std::vector<Unported> too_few(captions.size() - 1);
  EXPECT_THROW(open_clip().encode_batch(views, 1, want, too_few), CheckFailure);
}

TEST(ClipTokenizer, a_batch_is_encoded_where_no_thread_can_be_started) {
  const std::vector<std::string_view> captions(200, "a red apple");
  std::vector<int32_t> want;
  for (const std::string_view caption : captions) {
    const std::vector<int32_t> ids = encode(open_clip(), caption);
    want.insert(want.end(), ids.begin(), ids.end());
  }
  std::vector<int32_t> ids(want.size());
  std::vector<Unported> unported(captions.size());
  const NoNewThreads none;
  open_clip().encode_batch(captions, 4, ids, unported);
  EXPECT_EQ(ids, want);
}

// Both merge "aaa" otherwise, and one thread keeps the words of both.
TEST(ClipTokenizer, tokenizers_of_one_thread_do_not_mix_their_words) {
  std::vector<std::string> words;
  for (int length = 1; length <= 60; ++length) {
    for (const char* part : {"a", "z", "zq", "1x", "\u00e9", "!"}) {
      std::string word;
      while (word.size() < static_cast<size_t>(length)) {
        word += part;
      }
      words.push_back(word);
    }
  }
  for (const std::string& word : words) {
    const std::vector<int32_t> first = encode(hf(), word);
    const std::vector<int32_t> second = encode(open_clip(), word);
    EXPECT_EQ(encode(hf(), word), first) << word;
    EXPECT_EQ(encode(open_clip(), word), second) << word;
  }
}

TEST(ClipTokenizer, wants_room_for_the_whole_context) {
  std::vector<int32_t> ids(76);
  EXPECT_THROW(hf().encode("a", ids), CheckFailure);
}

TEST(ClipTokenizer, the_fingerprint_tells_dialects_apart) {
  EXPECT_EQ(hf().fingerprint().size(), 64u);
  EXPECT_NE(hf().fingerprint(), open_clip().fingerprint());
}

TEST(TokenizerDialect, names_are_those_of_the_command_line) {
  EXPECT_EQ(parse_tokenizer_dialect("hf").value(), TokenizerDialect::kHuggingFace);
  EXPECT_EQ(parse_tokenizer_dialect("open_clip").value(), TokenizerDialect::kOpenClip);
  EXPECT_EQ(parse_tokenizer_dialect("openclip").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
