#include "stores/s3_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "darkroom/core/check.h"
#include "stores/xml_text.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

using std::chrono::sys_days;
using std::chrono::year;

std::string listing(std::string_view content, std::string_view truncated = "false") {
  return fmt::format("<ListBucketResult><IsTruncated>{}</IsTruncated>{}</ListBucketResult>", truncated, content);
}

std::string entry_of(std::string_view key, std::string_view size = "1", std::string_view more = "") {
  return fmt::format("<Contents><Key>{}</Key><Size>{}</Size>{}</Contents>", key, size, more);
}

/// The message of a refused listing; "" where it was read.
std::string listing_refusal(std::string_view content, std::string_view truncated = "false") {
  const auto page = read_object_page(listing(content, truncated));
  EXPECT_TRUE(page.is_ok() || page.status().code() == StatusCode::kCorruptData);
  return page.is_ok() ? "" : page.status().message();
}

// Amazon S3 API reference, ListObjectsV2: "Listing keys", and the token of "Using a continuation token".
TEST(S3Documents, reads_the_published_listing) {
  const auto page = read_object_page(R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
    <Name>bucket</Name>
    <Prefix/>
    <NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>
    <KeyCount>205</KeyCount>
    <MaxKeys>1000</MaxKeys>
    <IsTruncated>true</IsTruncated>
    <Contents>
        <Key>my-image.jpg</Key>
        <LastModified>2009-10-12T17:50:30.000Z</LastModified>
        <ETag>"fba9dede5f27731c9771645a39863328"</ETag>
        <Size>434234</Size>
        <StorageClass>STANDARD</StorageClass>
    </Contents>
    <Contents><Key>empty</Key><Size>0</Size></Contents>
    <CommonPrefixes><Prefix>photos/2006/</Prefix></CommonPrefixes>
    <CommonPrefixes><Prefix>photos/2007/</Prefix></CommonPrefixes>
</ListBucketResult>)");
  ASSERT_TRUE(page.is_ok()) << page.status().to_string();
  ASSERT_EQ(page->objects.size(), 2);
  EXPECT_EQ(page->objects[0].key, "my-image.jpg");
  EXPECT_EQ(page->objects[0].size_bytes, 434234);
  EXPECT_EQ(page->objects[0].etag, "\"fba9dede5f27731c9771645a39863328\"");
  EXPECT_EQ(page->objects[0].modified, sys_days(year(2009) / 10 / 12) + std::chrono::seconds(17 * 3600 + 50 * 60 + 30));
  EXPECT_EQ(page->objects[1].key, "empty");
  EXPECT_EQ(page->objects[1].size_bytes, 0);
  EXPECT_EQ(page->objects[1].etag, "");
  EXPECT_FALSE(page->objects[1].modified.has_value());
  EXPECT_EQ(page->prefixes, (std::vector<std::string>{"photos/2006/", "photos/2007/"}));
  EXPECT_EQ(page->next_token, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
}

TEST(S3Documents, the_last_page_has_no_token) {
  const auto page = read_object_page(listing("<NextContinuationToken>stale</NextContinuationToken>"));
  ASSERT_TRUE(page.is_ok());
  EXPECT_TRUE(page->objects.empty());
  EXPECT_EQ(page->next_token, "");
}

TEST(S3Documents, keys_are_decoded_only_where_the_listing_says_so) {
  const std::string keys = entry_of("a+b%2Bc%20d/%C3%A4%01%25") + "<CommonPrefixes><Prefix>p+%2f</Prefix></CommonPrefixes>";
  const auto encoded = read_object_page(listing("<EncodingType>url</EncodingType>" + keys));
  ASSERT_TRUE(encoded.is_ok()) << encoded.status().to_string();
  EXPECT_EQ(encoded->objects.at(0).key, "a b+c d/\xC3\xA4\x01%");
  EXPECT_EQ(encoded->prefixes.at(0), "p /");
  const auto plain = read_object_page(listing(keys));
  ASSERT_TRUE(plain.is_ok());
  EXPECT_EQ(plain->objects.at(0).key, "a+b%2Bc%20d/%C3%A4%01%25");
  EXPECT_EQ(plain->prefixes.at(0), "p+%2f");
}

TEST(S3Documents, refuses_keys_that_are_wrongly_encoded) {
  const std::string url = "<EncodingType>url</EncodingType>";
  for (const std::string& key : std::vector<std::string>{"a%", "a%2", "a%zz", "a%-1", "a%2x", "%0x"}) {
    EXPECT_EQ(listing_refusal(url + entry_of("ok") + entry_of(key)),
              "ListBucketResult: Contents 2: a % in an encoded key is not followed by two hexadecimal digits: " + key);
  }
  EXPECT_EQ(listing_refusal(url + entry_of("%FF")), "ListBucketResult: Contents 1: a key is no UTF-8: %FF");
  EXPECT_EQ(listing_refusal("<EncodingType>base64</EncodingType>"), "ListBucketResult: keys in an unknown encoding (EncodingType): base64");
}

TEST(S3Documents, refuses_a_listing_that_lacks_doubles_or_garbles_an_element) {
  EXPECT_EQ(listing_refusal("<Contents><Size>1</Size></Contents>"), "ListBucketResult: Contents 1: an element lacks or is empty: Key");
  EXPECT_EQ(listing_refusal(entry_of("")), "ListBucketResult: Contents 1: an element lacks or is empty: Key");
  EXPECT_EQ(listing_refusal("<Contents><Key>a</Key></Contents>"), "ListBucketResult: Contents 1: an element lacks or is empty: Size");
  EXPECT_EQ(listing_refusal(entry_of("a", "1", "<Key>b</Key>")), "ListBucketResult: Contents 1: an element stands twice: Key");
  EXPECT_EQ(listing_refusal(entry_of("a", "1", "<ETag/><ETag/>")), "ListBucketResult: Contents 1: an element stands twice: ETag");
  EXPECT_EQ(listing_refusal("<CommonPrefixes/>"), "ListBucketResult: CommonPrefixes 1: an element lacks or is empty: Prefix");
  EXPECT_EQ(listing_refusal("", "yes"), "ListBucketResult: IsTruncated is neither true nor false: yes");
  EXPECT_EQ(listing_refusal("", "true"), "ListBucketResult: an element lacks or is empty: NextContinuationToken");
  EXPECT_EQ(listing_refusal("<IsTruncated>true</IsTruncated>"), "ListBucketResult: an element stands twice: IsTruncated");
  EXPECT_EQ(read_object_page("<ListBucketResult/>").status().message(), "ListBucketResult: an element lacks or is empty: IsTruncated");
}

TEST(S3Documents, bounds_sizes) {
  EXPECT_EQ(listing_refusal(entry_of("a", "1152921504606846976")), "");
  for (const std::string& size :
       std::vector<std::string>{"-1", "+1", " 1", "1.0", "1x", "0x1", "1152921504606846977", "9223372036854775808"}) {
    EXPECT_EQ(listing_refusal(entry_of("a", size)), "ListBucketResult: Contents 1: Size is no number of bytes: " + size);
  }
}

TEST(S3Documents, reads_times_to_the_second) {
  const auto modified = [](std::string_view time) {
    const auto page = read_object_page(listing(entry_of("a", "1", fmt::format("<LastModified>{}</LastModified>", time))));
    return page.is_ok() ? page->objects.at(0).modified : std::nullopt;
  };
  const auto leap_day = sys_days(year(2024) / 2 / 29) + std::chrono::seconds(86399);
  EXPECT_EQ(modified("2024-02-29T23:59:59Z"), leap_day);
  EXPECT_EQ(modified("2024-02-29T23:59:59.999999999Z"), leap_day);
  EXPECT_EQ(modified("1970-01-01T00:00:00.000Z"), sys_days(year(1970) / 1 / 1));
  EXPECT_EQ(modified("0001-01-01T00:00:00Z"), std::nullopt);  // What Go writes for no time.
  EXPECT_EQ(modified("1969-12-31T23:59:59Z"), std::nullopt);
  EXPECT_EQ(listing_refusal(entry_of("a", "1", "<LastModified>0001-01-01T00:00:00Z</LastModified>")), "");
  EXPECT_EQ(modified("9999-12-31T23:59:59Z"), sys_days(year(9999) / 12 / 31) + std::chrono::seconds(86399));
  for (const std::string& time : std::vector<std::string>{
           "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "2024-01-32T00:00:00Z", "2024-01-01T24:00:00Z",
           "2024-01-01T00:60:00Z", "2024-01-01T00:00:60Z", "2024-01-01T00:00:00", "2024-01-01T00:00:00+01:00", "2024-01-01 00:00:00Z",
           "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00.-1Z", "2024-01-01T00:00:00,5Z", "2024-1-1T0:0:0Z", "-024-01-01T00:00:00Z", "Z",
           "Fri, 01 Jan 2024 00:00:00 GMT"}) {
    EXPECT_EQ(listing_refusal(entry_of("a", "1", "<LastModified>" + time + "</LastModified>")),
              "ListBucketResult: Contents 1: a time is not written like 2010-11-10T20:48:33.000Z: " + time);
  }
}

TEST(S3Documents, refuses_another_reply_than_expected) {
  EXPECT_EQ(read_object_page("<html/>").status().message(),
            "the store answered with another element than expected (want, got): ListBucketResult html");
  EXPECT_THAT(read_object_page("no XML").status().message(), HasSubstr("ListBucketResult: the XML reply is not understood"));
  EXPECT_EQ(read_upload_page(listing("")).status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_error(listing("")).status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_upload_id("<Error><Code>A</Code></Error>").status().code(), StatusCode::kCorruptData);
}

// Amazon S3 API reference, ListMultipartUploads, shortened by one of its three uploads.
TEST(S3Documents, reads_the_published_list_of_uploads) {
  const auto page = read_upload_page(R"(<?xml version="1.0" encoding="UTF-8"?>
<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Bucket>bucket</Bucket>
  <KeyMarker></KeyMarker>
  <UploadIdMarker></UploadIdMarker>
  <NextKeyMarker>my-movie.m2ts</NextKeyMarker>
  <NextUploadIdMarker>YW55IGlkZWEgd2h5IGVsdmluZydzIHVwbG9hZCBmYWlsZWQ</NextUploadIdMarker>
  <MaxUploads>3</MaxUploads>
  <IsTruncated>true</IsTruncated>
  <Upload>
    <Key>my-divisor</Key>
    <UploadId>XMgbGlrZSBlbHZpbmcncyBub3QgaGF2aW5nIG11Y2ggbHVjaw</UploadId>
    <Initiator><ID>arn:aws:iam::111122223333:user/user1-11111a31-17b5-4fb7-9df5-b111111f13de</ID></Initiator>
    <Owner><ID>75aa57f09aa0c8caeab4f8c24e99d10f8e7faeebf76c078efc7c6caea54ba06a</ID></Owner>
    <StorageClass>STANDARD</StorageClass>
    <Initiated>2010-11-10T20:48:33.000Z</Initiated>
  </Upload>
  <Upload>
    <Key>my-movie.m2ts</Key>
    <UploadId>VXBsb2FkIElEIGZvciBlbHZpbmcncyBteS1tb3ZpZS5tMnRzIHVwbG9hZA</UploadId>
    <Initiated>2010-11-10T20:49:33.000Z</Initiated>
  </Upload>
</ListMultipartUploadsResult>)");
  ASSERT_TRUE(page.is_ok()) << page.status().to_string();
  ASSERT_EQ(page->uploads.size(), 2);
  EXPECT_EQ(page->uploads[0].key, "my-divisor");
  EXPECT_EQ(page->uploads[0].id, "XMgbGlrZSBlbHZpbmcncyBub3QgaGF2aW5nIG11Y2ggbHVjaw");
  EXPECT_EQ(page->uploads[0].initiated, sys_days(year(2010) / 11 / 10) + std::chrono::seconds(20 * 3600 + 48 * 60 + 33));
  EXPECT_EQ(page->uploads[1].key, "my-movie.m2ts");
  EXPECT_EQ(page->next_key, "my-movie.m2ts");
  EXPECT_EQ(page->next_id, "YW55IGlkZWEgd2h5IGVsdmluZydzIHVwbG9hZCBmYWlsZWQ");
}

TEST(S3Documents, decodes_the_keys_of_uploads_and_their_marker_and_not_their_ids) {
  const auto page = read_upload_page(
      "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextKeyMarker>n+1</NextKeyMarker>"
      "<NextUploadIdMarker>i+1%20</NextUploadIdMarker><Upload><Key>k%2B</Key><UploadId>u+2%20</UploadId>"
      "<Initiated>2010-11-10T20:48:33Z</Initiated></Upload></ListMultipartUploadsResult>");
  ASSERT_TRUE(page.is_ok()) << page.status().to_string();
  EXPECT_EQ(page->uploads.at(0).key, "k+");
  EXPECT_EQ(page->uploads.at(0).id, "u+2%20");
  EXPECT_EQ(page->next_key, "n 1");
  EXPECT_EQ(page->next_id, "i+1%20");
}

TEST(S3Documents, refuses_uploads_without_a_key_or_an_id) {
  const auto refusal = [](std::string_view content) {
    return read_upload_page(fmt::format("<ListMultipartUploadsResult>{}</ListMultipartUploadsResult>", content)).status().message();
  };
  const std::string last = "<IsTruncated>false</IsTruncated>";
  const std::string key = "<Key>k</Key>";
  const std::string id = "<UploadId>i</UploadId>";
  const std::string time = "<Initiated>2010-11-10T20:48:33Z</Initiated>";
  EXPECT_EQ(refusal(last + "<Upload>" + key + id + time + "</Upload>"), "");
  const std::string begins = "ListMultipartUploadsResult: Upload 1: an element lacks or is empty: ";
  EXPECT_EQ(refusal(last + "<Upload>" + id + time + "</Upload>"), begins + "Key");
  EXPECT_EQ(refusal(last + "<Upload>" + key + time + "</Upload>"), begins + "UploadId");
  EXPECT_EQ(refusal(last + "<Upload>" + key + id + "<Initiated>soon</Initiated></Upload>"),
            "ListMultipartUploadsResult: Upload 1: a time is not written like 2010-11-10T20:48:33.000Z: soon");
  EXPECT_EQ(refusal("<IsTruncated>true</IsTruncated><NextUploadIdMarker>i</NextUploadIdMarker>"),
            "ListMultipartUploadsResult: an element lacks or is empty: NextKeyMarker");
  EXPECT_EQ(refusal("<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"),
            "ListMultipartUploadsResult: an element lacks or is empty: NextUploadIdMarker");
}

TEST(S3Documents, an_upload_may_have_no_time_that_is_known) {
  for (const char* time : {"", "<Initiated/>", "<Initiated>0001-01-01T00:00:00Z</Initiated>"}) {
    const auto page = read_upload_page(
        fmt::format("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>k</Key><UploadId>i</UploadId>{}</Upload>"
                    "</ListMultipartUploadsResult>",
                    time));
    ASSERT_TRUE(page.is_ok()) << page.status().to_string();
    EXPECT_EQ(page->uploads.at(0).initiated, std::nullopt) << time;
  }
}

// Amazon S3 API reference, CreateMultipartUpload.
TEST(S3Documents, reads_an_upload_id) {
  const auto id = read_upload_id(
      "<InitiateMultipartUploadResult><Bucket>example-bucket</Bucket><Key>example-object</Key>"
      "<UploadId>VXBsb2FkIElEIGZvciA2aWWpbmcncyBteS1tb3ZpZS5tMnRzIHVwbG9hZA</UploadId></InitiateMultipartUploadResult>");
  ASSERT_TRUE(id.is_ok()) << id.status().to_string();
  EXPECT_EQ(*id, "VXBsb2FkIElEIGZvciA2aWWpbmcncyBteS1tb3ZpZS5tMnRzIHVwbG9hZA");
  EXPECT_EQ(read_upload_id("<InitiateMultipartUploadResult><UploadId/></InitiateMultipartUploadResult>").status().message(),
            "InitiateMultipartUploadResult: an element lacks or is empty: UploadId");
}

TEST(S3Documents, reads_an_error_without_what_is_secret_in_it) {
  const auto error = read_error(
      "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature\r\n does not match.</Message>"
      "<AWSAccessKeyId>AKIASECRET</AWSAccessKeyId><StringToSign>SECRET</StringToSign><RequestId>4442587FB7D0A2F9</RequestId></Error>");
  ASSERT_TRUE(error.is_ok()) << error.status().to_string();
  EXPECT_EQ(error->code, "SignatureDoesNotMatch");
  EXPECT_EQ(error->message, "The signature  does not match.");
  EXPECT_EQ(error->request_id, "4442587FB7D0A2F9");
  EXPECT_EQ(error->region, "");
  for (const std::string& text : {error->code, error->message, error->request_id, error->region}) {
    EXPECT_THAT(text, Not(HasSubstr("SECRET")));
  }
  const auto elsewhere = read_error("<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>");
  ASSERT_TRUE(elsewhere.is_ok());
  EXPECT_EQ(elsewhere->region, "eu-west-1");
}

TEST(S3Documents, an_errors_texts_fit_a_log) {
  const auto message_of = [](const std::string& text) {
    return read_error("<Error><Code>A</Code><Message>" + text + "</Message></Error>")->message;
  };
  EXPECT_EQ(message_of("a&#1;b&#27;[31mc\n\x7F"), "a b [31mc  ");
  EXPECT_EQ(message_of(std::string(500, 'x')), std::string(500, 'x'));
  EXPECT_EQ(message_of(std::string(501, 'x')), std::string(500, 'x'));
  EXPECT_EQ(message_of(std::string(499, 'x') + "\xC3\xA4"), std::string(499, 'x'));
  EXPECT_EQ(message_of(std::string(498, 'x') + "\xC3\xA4z"), std::string(498, 'x') + "\xC3\xA4");
}

TEST(S3Documents, an_errors_code_is_a_name) {
  const auto status_of = [](const std::string& code) { return read_error("<Error><Code>" + code + "</Code></Error>").status(); };
  EXPECT_TRUE(status_of("InvalidRange.2").is_ok());
  EXPECT_TRUE(status_of(std::string(100, 'A')).is_ok());
  for (const std::string& code : std::vector<std::string>{"No Such Key", "a\nb", "a/b", "\xC3\xA4", "a&#1;"}) {
    EXPECT_THAT(status_of(code).message(), HasSubstr("Error: Code is no name of an error: ")) << code;
  }
  EXPECT_EQ(status_of(std::string(101, 'A')).code(), StatusCode::kCorruptData);
  EXPECT_EQ(status_of("").message(), "Error: an element lacks or is empty: Code");
}

TEST(S3Documents, a_reply_of_status_200_may_be_a_failure) {
  const auto done = read_outcome("\n\n <CompleteMultipartUploadResult><ETag>\"x-2\"</ETag></CompleteMultipartUploadResult>",
                                 "CompleteMultipartUploadResult");
  ASSERT_TRUE(done.is_ok()) << done.status().to_string();
  EXPECT_FALSE(done->has_value());
  const auto failed = read_outcome("<Error><Code>InternalError</Code><Message>try again</Message></Error>", "CopyObjectResult");
  ASSERT_TRUE(failed.is_ok()) << failed.status().to_string();
  ASSERT_TRUE(failed->has_value());
  EXPECT_EQ((*failed)->code, "InternalError");
  EXPECT_EQ(read_outcome("<Error/>", "CopyObjectResult").status().message(), "Error: an element lacks or is empty: Code");
  EXPECT_EQ(read_outcome("<CopyObjectResult/>", "CompleteMultipartUploadResult").status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(read_outcome("", "CopyObjectResult").status().code(), StatusCode::kCorruptData);
}

TEST(S3Documents, a_listing_cut_at_any_byte_is_refused) {
  const std::string whole = listing("<EncodingType>url</EncodingType>" + entry_of("a%20b", "7", "<ETag>&quot;0&quot;</ETag>"));
  EXPECT_TRUE(read_object_page(whole).is_ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(read_object_page(std::string_view(whole).substr(0, length)).status().code(), StatusCode::kCorruptData) << length;
  }
}

TEST(S3Documents, any_changed_byte_is_read_or_refused) {
  const std::string whole =
      listing("<EncodingType>url</EncodingType>" + entry_of("a%20b", "7", "<LastModified>2024-02-29T23:59:59.5Z</LastModified>"));
  std::mt19937 random(13);
  size_t num_refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = whole;
    changed[random() % changed.size()] = static_cast<char>(random() % 256);
    const auto page = read_object_page(changed);
    num_refused += page.is_ok() ? 0 : 1;
    EXPECT_TRUE(page.is_ok() || page.status().code() == StatusCode::kCorruptData);
  }
  EXPECT_GT(num_refused, 5'000);
}

TEST(S3Documents, writes_the_body_that_completes_an_upload) {
  EXPECT_EQ(complete_upload_body(std::vector<S3Part>{{.number = 1, .etag = "\"a<&\""}, {.number = 10'000, .etag = "b"}}),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            "<Part><PartNumber>1</PartNumber><ETag>&quot;a&lt;&amp;&quot;</ETag></Part>"
            "<Part><PartNumber>10000</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>");
  const auto read_back = parse_xml(complete_upload_body(std::vector<S3Part>{{.number = 7, .etag = "\"a<&'\""}}));
  ASSERT_TRUE(read_back.is_ok());
  EXPECT_EQ(read_back->children.at(0).children.at(1).text, "\"a<&'\"");
  EXPECT_THROW((void)complete_upload_body(std::vector<S3Part>{{.number = 2, .etag = "a"}, {.number = 2, .etag = "b"}}), CheckFailure);
  EXPECT_THROW((void)complete_upload_body(std::vector<S3Part>{{.number = 0, .etag = "a"}}), CheckFailure);
  EXPECT_THROW((void)complete_upload_body(std::vector<S3Part>{{.number = 10'001, .etag = "a"}}), CheckFailure);
  EXPECT_THROW((void)complete_upload_body({}), CheckFailure);
}

}  // namespace
}  // namespace darkroom
