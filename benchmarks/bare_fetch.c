#define _GNU_SOURCE
// The floor of bench_download.py: connects, asks, receives and writes each body, and does nothing else.
// usage: bare_fetch PORT COUNT [FILE]    GET /0.jpg to /COUNT-1.jpg of 127.0.0.1:PORT, one after the other; into FILE, where it is given.
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char buffer[1 << 20];

static long received(int connection) {
  long size = 0, body = -1, head = 0;
  while (body < 0 || size < head + body) {
    const long got = recv(connection, buffer + size, sizeof(buffer) - 1 - size, 0);
    if (got <= 0) {
      return -1;
    }
    size += got;
    buffer[size] = 0;
    const char* end = body < 0 ? strstr(buffer, "\r\n\r\n") : NULL;
    if (end != NULL) {
      const char* length = strcasestr(buffer, "content-length:");
      head = end + 4 - buffer;
      body = length != NULL ? atol(length + 15) : 0;
    }
  }
  return size;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: bare_fetch PORT COUNT [FILE]\n");
    return 2;
  }
  const int file = argc > 3 ? open(argv[3], O_CREAT | O_WRONLY | O_TRUNC, 0600) : -1;
  const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  for (int i = 0; i < atoi(argv[2]); ++i) {
    char request[200];
    const int length = snprintf(request, sizeof(request), "GET /%d.jpg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", i);
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, (const struct sockaddr*)&address, sizeof(address)) != 0 || send(connection, request, length, 0) != length) {
      return 1;
    }
    const long size = received(connection);
    if (size < 0 || (file >= 0 && write(file, buffer, size) != size)) {
      return 1;
    }
    close(connection);
  }
  return 0;
}
