/* SPDX-License-Identifier: BSD-2-Clause */
/* chacha20.cu against the vectors of RFC 8439, plain C, and OpenSSL where it is installed. */
#include "chacha20.culvert.h"
#include "chacha20.h"
#include "kernels/machine.h"
#include "kernels/suites.h"

#ifdef HAVE_OPENSSL
#include <openssl/evp.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static machine *m;

static void open_machine(void)
{
    m = machine_open();
}

static void close_machine(void)
{
    machine_close(m);
}

struct cipher {
    unsigned char key[32], nonce[12];
    uint32_t counter;
};

/* On the machine; `shift`: both buffers that many bytes off alignment; blocks 0: as many as suit.
 */
static void encrypt(const struct cipher *c, const unsigned char *in, unsigned char *out, size_t n,
                    size_t shift, unsigned blocks)
{
    struct chacha20_key key = chacha20_make_key(c->key, c->nonce);
    uint64_t d_in = machine_alloc(m, n + shift + 16), d_out = machine_alloc(m, n + shift + 16);
    uint64_t from = d_in + shift, to = d_out + shift, bytes = n;
    uint32_t counter = c->counter;
    unsigned char *all = malloc(n + shift + 16);
    ck_assert_ptr_nonnull(all);
    if (n) {
        machine_put(m, from, in, n);
    }
    void *params[] = {&from, &to, &bytes, &key, &counter};
    struct machine_launch l = {.image = &culvert_image_chacha20,
                               .kernel = "chacha20",
                               .grid = {blocks ? blocks : chacha20_blocks(n)},
                               .block = {CHACHA20_THREADS}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, all, d_out, n + shift + 16);
    memcpy(out, all + shift, n);
    size_t strays = 0; /* nothing beside it is written */
    for (size_t i = 0; i < n + shift + 16; i++) {
        strays += all[i] != 0xcd && (i < shift || i >= shift + n);
    }
    ck_assert_uint_eq(strays, 0);
    machine_free(m, d_in);
    machine_free(m, d_out);
    free(all);
}

static uint32_t rotate_left(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static void quarter_round(uint32_t *s, int a, int b, int c, int d)
{
    s[a] += s[b];
    s[d] = rotate_left(s[d] ^ s[a], 16);
    s[c] += s[d];
    s[b] = rotate_left(s[b] ^ s[c], 12);
    s[a] += s[b];
    s[d] = rotate_left(s[d] ^ s[a], 8);
    s[c] += s[d];
    s[b] = rotate_left(s[b] ^ s[c], 7);
}

/* RFC 8439, 2.3: one block of the keystream. */
static void reference_block(const struct cipher *c, uint32_t counter, unsigned char block[64])
{
    uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, s[16];
    for (int i = 0; i < 8; i++) {
        start[4 + i] = chacha20_load32(c->key + 4 * i);
    }
    start[12] = counter;
    for (int i = 0; i < 3; i++) {
        start[13 + i] = chacha20_load32(c->nonce + 4 * i);
    }
    memcpy(s, start, sizeof s);
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 4; k++) {
            quarter_round(s, k, 4 + k, 8 + k, 12 + k);
        }
        for (int k = 0; k < 4; k++) {
            quarter_round(s, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4);
        }
    }
    for (int i = 0; i < 64; i++) {
        block[i] = (unsigned char)((s[i / 4] + start[i / 4]) >> 8 * (i % 4));
    }
}

static void encrypt_reference(const struct cipher *c, const unsigned char *in, unsigned char *out,
                              size_t n)
{
    unsigned char block[64];
    for (size_t i = 0; i < n; i++) {
        if (i % 64 == 0) {
            reference_block(c, c->counter + (uint32_t)(i / 64), block);
        }
        out[i] = in[i] ^ block[i % 64];
    }
}

#ifdef HAVE_OPENSSL
static void encrypt_openssl(const struct cipher *c, const unsigned char *in, unsigned char *out,
                            size_t n)
{
    unsigned char iv[16];
    int written = 0;
    for (int i = 0; i < 4; i++) {
        iv[i] = (unsigned char)(c->counter >> 8 * i);
    }
    memcpy(iv + 4, c->nonce, 12);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    ck_assert_ptr_nonnull(ctx);
    ck_assert_int_eq(EVP_EncryptInit_ex(ctx, EVP_chacha20(), NULL, c->key, iv), 1);
    ck_assert_int_eq(EVP_EncryptUpdate(ctx, out, &written, in, (int)n), 1);
    ck_assert_int_eq(written, (int)n);
    EVP_CIPHER_CTX_free(ctx);
}
#endif

static size_t from_hex(const char *hex, unsigned char *out)
{
    size_t n = 0;
    for (; *hex; hex += 2) {
        unsigned byte;
        ck_assert_int_eq(sscanf(hex, "%2x", &byte), 1);
        out[n++] = (unsigned char)byte;
    }
    return n;
}

#define ZERO8   "0000000000000000"
#define ZERO32  ZERO8 ZERO8 ZERO8 ZERO8
#define COUNTED "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define NONCE0  ZERO8 "00000000"
#define NONCE2  ZERO8 "00000002"

/* plain NULL: zeros, so that the result is the keystream. */
static const struct vector {
    const char *section, *key, *nonce;
    uint32_t counter;
    const char *plain, *result;
} vectors[] = {
    {"2.3.2", COUNTED, "000000090000004a00000000", 1, NULL,
     "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
     "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"},
    {"2.4.2", COUNTED, "000000000000004a00000000", 1,
     "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
     "sunscreen would be it.",
     "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
     "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
     "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
     "5af90bbf74a35be6b40b8eedf2785e42874d"},
    {"A.1 #1", ZERO32, NONCE0, 0, NULL,
     "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
     "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"},
    {"A.1 #2", ZERO32, NONCE0, 1, NULL,
     "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
     "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"},
    {"A.1 #3", ZERO8 ZERO8 ZERO8 "0000000000000001", NONCE0, 1, NULL,
     "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
     "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"},
    {"A.1 #4", "00ff000000000000" ZERO8 ZERO8 ZERO8, NONCE0, 2, NULL,
     "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
     "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"},
    {"A.1 #5", ZERO32, NONCE2, 0, NULL,
     "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
     "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"},
    {"A.2 #2", ZERO8 ZERO8 ZERO8 "0000000000000001", NONCE2, 1,
     "Any submission to the IETF intended by the Contributor for publication as all or part of an "
     "IETF Internet-Draft or RFC and any statement made within the context of an IETF activity is "
     "considered an \"IETF Contribution\". Such statements include oral statements in IETF "
     "sessions, as well as written and electronic communications made at any time or place, which "
     "are addressed to",
     "a3fbf07df3fa2fde4f376ca23e82737041605d9f4f4f57bd8cff2c1d4b7955ec"
     "2a97948bd3722915c8f3d337f7d370050e9e96d647b7c39f56e031ca5eb6250d"
     "4042e02785ececfa4b4bb5e8ead0440e20b6e8db09d881a7c6132f420e527950"
     "42bdfa7773d8a9051447b3291ce1411c680465552aa6c405b7764d5e87bea85a"
     "d00f8449ed8f72d0d662ab052691ca66424bc86d2df80ea41f43abf937d3259d"
     "c4b2d0dfb48a6c9139ddd7f76966e928e635553ba76c5c879d7b35d49eb2e62b"
     "0871cdac638939e25e8a1e0ef9d5280fa8ca328b351c3c765989cbcf3daa8b6c"
     "cc3aaf9f3979c92b3720fc88dc95ed84a1be059c6499b9fda236e7e818b04b0b"
     "c39c1e876b193bfe5569753f88128cc08aaa9b63d1a16f80ef2554d7189c411f"
     "5869ca52c5b83fa36ff216b9c1d30062bebcfd2dc5bce0911934fda79a86f6e6"
     "98ced759c3ff9b6477338f3da4f9cd8514ea9982ccafb341b2384dd902f3d1ab"
     "7ac61dd29c6f21ba5b862f3730e37cfdc4fd806c22f221"},
    {"A.2 #3", "1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0", NONCE2, 42,
     "'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\n"
     "All mimsy were the borogoves,\nAnd the mome raths outgrabe.",
     "62e6347f95ed87a45ffae7426f27a1df5fb69110044c0d73118effa95b01e5cf"
     "166d3df2d721caf9b21e5fb14c616871fd84c54f9d65b283196c7fe4f60553eb"
     "f39c6402c42234e32a356b3e764312a61a5532055716ead6962568f87d3f3f77"
     "04c6a8d1bcd1bf4d50d6154b6da731b187b58dfd728afa36757a797ac188d1"},
};

START_TEST(the_vectors_of_rfc_8439)
{
    const struct vector *v = &vectors[_i];
    struct cipher c = {.counter = v->counter};
    unsigned char plain[512] = {0}, result[512], expected[512];
    from_hex(v->key, c.key);
    from_hex(v->nonce, c.nonce);
    size_t n = from_hex(v->result, expected);
    if (v->plain) {
        ck_assert_uint_eq(strlen(v->plain), n);
        memcpy(plain, v->plain, n);
    }
    encrypt(&c, plain, result, n, 0, 0);
    ck_assert_msg(memcmp(result, expected, n) == 0, "section %s", v->section);
}
END_TEST

static void compare(uint64_t seed, size_t n, uint32_t counter, size_t shift, unsigned blocks)
{
    struct cipher c = {.counter = counter};
    unsigned char *in = malloc(n + 1), *out = malloc(n + 1), *expected = malloc(n + 1);
    ck_assert(in && out && expected);
    for (size_t i = 0; i < 32; i++) {
        c.key[i] = (unsigned char)machine_random(&seed);
    }
    for (size_t i = 0; i < 12; i++) {
        c.nonce[i] = (unsigned char)machine_random(&seed);
    }
    for (size_t i = 0; i < n; i++) {
        in[i] = (unsigned char)machine_random(&seed);
    }
    encrypt_reference(&c, in, expected, n);
#ifdef HAVE_OPENSSL
    encrypt_openssl(&c, in, out, n);
    ck_assert(memcmp(out, expected, n) == 0);
#endif
    encrypt(&c, in, out, n, shift, blocks);
    ck_assert_msg(memcmp(out, expected, n) == 0, "%zu bytes, counter %u, shift %zu, %u blocks", n,
                  (unsigned)counter, shift, blocks);
    free(in);
    free(out);
    free(expected);
}

START_TEST(sizes_around_every_boundary)
{
    const size_t sizes[] = {1,   15,  16,  17,  63,   64,    65,    127,   128,   129,         191,
                            192, 255, 256, 257, 1000, 16383, 16384, 16385, 65536, 1048576 + 13};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        compare(100 + i, sizes[i], (uint32_t)i * 12345, 0, 0);
    }
}
END_TEST

START_TEST(no_bytes_are_no_bytes)
{
    struct cipher c = {.counter = 1};
    encrypt(&c, NULL, (unsigned char[1]){0}, 0, 0, 1);
}
END_TEST

START_TEST(unaligned_buffers)
{
    for (size_t shift = 1; shift < 16; shift++) {
        compare(200 + shift, 1000 + shift, 7, shift, 0);
    }
}
END_TEST

START_TEST(any_grid_does_the_whole)
{
    for (unsigned blocks = 1; blocks <= 9; blocks += 2) {
        compare(300 + blocks, 100000 + blocks, 0, 0, blocks);
    }
}
END_TEST

START_TEST(the_last_counters)
{
    compare(400, 64 * 16, 0xffffffff - 15, 0, 0);
}
END_TEST

START_TEST(in_place_it_is_its_own_inverse)
{
    enum { N = 5000 };
    struct chacha20_key key = {{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10, 11}};
    unsigned char in[N], out[N];
    uint64_t d = machine_alloc(m, N), bytes = N;
    uint32_t counter = 3;
    memset(in, 'x', N);
    machine_put(m, d, in, N);
    void *params[] = {&d, &d, &bytes, &key, &counter};
    struct machine_launch l = {.image = &culvert_image_chacha20,
                               .kernel = "chacha20",
                               .grid = {chacha20_blocks(N)},
                               .block = {CHACHA20_THREADS}};
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d, N);
    ck_assert(memcmp(in, out, N) != 0);
    ck_assert_int_eq(machine_run(m, &l, params), 0);
    machine_get(m, out, d, N);
    ck_assert(memcmp(in, out, N) == 0);
    machine_free(m, d);
}
END_TEST

Suite *chacha20_suite(void)
{
    Suite *s = suite_create("chacha20");
    TCase *t = tcase_create("chacha20");
    tcase_add_checked_fixture(t, open_machine, close_machine);
    tcase_add_loop_test(t, the_vectors_of_rfc_8439, 0, sizeof vectors / sizeof *vectors);
    tcase_add_test(t, sizes_around_every_boundary);
    tcase_add_test(t, no_bytes_are_no_bytes);
    tcase_add_test(t, unaligned_buffers);
    tcase_add_test(t, any_grid_does_the_whole);
    tcase_add_test(t, the_last_counters);
    tcase_add_test(t, in_place_it_is_its_own_inverse);
    suite_add_tcase(s, t);
    return s;
}
