/* The little JSON that the runner of the scenario table reads: one object a line. */
#ifndef JSON_H
#define JSON_H

#include <stdlib.h>
#include <string.h>

/* Where a value ends. */
static const char *json_end(const char *at)
{
    if (*at == '"') {
        for (at++; *at != '"'; at++) {
            at += *at == '\\';
        }
        return at + 1;
    }
    if (*at == '{' || *at == '[') {
        int depth = 0;
        do {
            if (*at == '"') {
                at = json_end(at);
                continue;
            }
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            at++;
        } while (depth > 0);
        return at;
    }
    return at + strcspn(at, ",]}\n");
}

/* A field of an object, or NULL. */
static const char *json_get(const char *object, const char *name)
{
    size_t len = strlen(name);
    for (object++; *object == '"';) {
        const char *key = object + 1, *value = json_end(object) + 1;
        if (strncmp(key, name, len) == 0 && key[len] == '"') {
            return strncmp(value, "null", 4) == 0 ? NULL : value;
        }
        object = json_end(value);
        object += *object == ',';
    }
    return NULL;
}

static unsigned json_hex(const char *digits, int count)
{
    char text[5] = "";
    memcpy(text, digits, (size_t)count);
    return (unsigned)strtoul(text, NULL, 16);
}

/* The bytes of a text, with a NUL behind them, to be freed. */
static char *json_text(const char *value, size_t *len)
{
    const char *end = json_end(value) - 1;
    char *text = malloc((size_t)(end - value) + 1), *to = text;
    for (value++; value < end; value++) {
        unsigned code;
        if (*value != '\\') {
            *to++ = *value;
            continue;
        }
        switch (*++value) {
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'u':
            /* Only control characters are written so. */
            code = json_hex(value + 1, 4);
            if (code > 0x7f) {
                abort();
            }
            *to++ = (char)code;
            value += 4;
            break;
        default: *to++ = *value;
        }
    }
    *to = '\0';
    if (len != NULL) {
        *len = (size_t)(to - text);
    }
    return text;
}

#endif
