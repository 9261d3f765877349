#include "plain.h"
#include <criterion/criterion.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static void shown(const char *text, const char *want)
{
	char *copy = plain_copy(text);
	cr_assert_not_null(copy);
	cr_expect_str_eq(copy, want);
	free(copy);
}

Test(plain, what_drives_a_terminal_is_shown_and_not_obeyed)
{
	shown("", "");
	shown("a\033[31mb\n\t\x7f", "a\\x1b[31mb\\x0a\\x09\\x7f");
	shown("\xc2\x9b\xe2\x80\xae\xd8\x9c\xef\xbb\xbf",
	      "\\xc2\\x9b\\xe2\\x80\\xae\\xd8\\x9c\\xef\\xbb\\xbf");
}

Test(plain, names_of_any_language_and_backslashes_stay_as_they_are)
{
	shown("\"m\\x\" \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
	      "\"m\\x\" \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
}

Test(plain, what_is_no_utf8_is_shown_byte_by_byte)
{
	shown("\xff\xc3(\xed\xa0\x80\xe2\x82", "\\xff\\xc3(\\xed\\xa0\\x80\\xe2\\x82");
	shown("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
}

Test(plain, a_line_ends_where_it_was_meant_to)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	cr_assert_not_null(out);
	plain_line(out, "%s: %d", "one\ntwo", 3);
	fclose(out);
	cr_expect_str_eq(text, "one\\x0atwo: 3\n");
	free(text);
}

Test(plain, getopt_repeats_what_it_does_not_know_as_a_line)
{
	char name[] = "tool", unknown[] = "--a\033b\nc";
	char *argv[] = {name, unknown, NULL};
	static const struct option words[] = {{"all", no_argument, NULL, 'a'}, {0}};
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size), *terminal = stderr;
	cr_assert_not_null(out);
	stderr = out;
	int option = plain_getopt(2, argv, "a", words);
	stderr = terminal;
	fclose(out);
	cr_expect_eq(option, '?');
	cr_expect_not_null(strstr(text, "--a\\x1bb\\x0ac"), "%s", text);
	cr_expect_eq(strchr(text, '\n'), text + size - 1);
	free(text);
}
