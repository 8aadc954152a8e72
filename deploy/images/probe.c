/* Exits with 0 if the service of this container answers a page with 200, or else prints the answer and exits with 1.
 *
 *     muster-probe [PORT [PATH]]
 *
 * The default is /readyz on the port of MUSTER_METRICS_ADDRESS. It is a hundred times cheaper than a start of Python, and a
 * health check runs every few seconds.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int fail(const char *why) {
    fprintf(stderr, "muster-probe: %s\n", why);
    return 1;
}

static int port_of(const char *address) {
    const char *colon = address ? strrchr(address, ':') : NULL;
    return colon ? atoi(colon + 1) : 7001;
}

int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : port_of(getenv("MUSTER_METRICS_ADDRESS"));
    const char *path = argc > 2 ? argv[2] : "/readyz";
    struct timeval limit = {2, 0};
    struct sockaddr_in address = {0};
    char request[512], answer[4096];
    int size = snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path);
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    size_t length = 0;
    ssize_t more;

    if (size < 0 || (size_t)size >= sizeof request)
        return fail("the path is too long");
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0)
        return fail("nothing listens on the port");
    if (write(connection, request, (size_t)size) != size)
        return fail("the request was not taken");
    while (length < sizeof answer - 1 && (more = read(connection, answer + length, sizeof answer - 1 - length)) > 0)
        length += (size_t)more;
    answer[length] = 0;
    if (length > 12 && strncmp(answer, "HTTP/1.", 7) == 0 && strncmp(answer + 8, " 200", 4) == 0)
        return 0;
    return fail(length ? answer : "no answer within 2 s");
}
