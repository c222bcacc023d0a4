"""plimsoll chat in a pseudo-terminal.

Usage: chat_test.py PLIMSOLL (from the repository's root). Standard library only.
"""
import codecs
import fcntl
import json
import os
import pty
import select
import signal
import struct
import termios
import time
import unittest

from command_run import CommandTest, output, PLIMSOLL


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, *words, term="xterm", columns=1000):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execve(PLIMSOLL, [str(PLIMSOLL), *map(str, words)], {**os.environ, "TERM": term})
        self.resize(columns)
        self.text = ""
        # The terminal hands out pieces of 4 KiB at most, which may end inside a character.
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def resize(self, columns):
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def wait_for(self, end, seconds=600):
        """What appears up to `end`, which is taken."""
        deadline = time.monotonic() + seconds
        while end not in self.text:
            ready, _, _ = select.select([self.descriptor], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"no {end!r} within {seconds} s: {self.text!r}")
            try:
                self.text += self.decoder.decode(os.read(self.descriptor, 65536)).replace("\r\n", "\n")
            except OSError:
                raise AssertionError(f"ended before {end!r}: {self.text!r}")
        before, self.text = self.text.split(end, 1)
        return before

    def type(self, line):
        os.write(self.descriptor, line.encode() + b"\n")
        self.wait_for(line + "\n")  # the terminal's echo

    def press(self, key):
        os.write(self.descriptor, key)

    def exit_code(self):
        for _ in range(6000):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.descriptor)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the command did not end")


class Chat(CommandTest):
    def chat(self, *words, **terminal):
        length = () if "--max-new-tokens" in words else ("--max-new-tokens", "8")
        terminal = Terminal("chat", self.run_folder, "--template", "chatml", *length, *words, **terminal)
        terminal.wait_for("> ")
        return terminal

    def ask(self, terminal, line):
        terminal.type(line)
        silent = line.startswith("/") and line != "/again"
        return terminal.wait_for("> " if silent else "\n> ")

    def test_the_conversation_is_kept_and_saved_and_forgotten(self):
        saved = self.folder / "talk.jsonl"
        terminal = self.chat("--system", "Be brief.", "--temperature", "1", "--seed", "5")
        first = self.ask(terminal, "What is the capital of Peru?")
        self.ask(terminal, "And of Chile?")
        mine = self.folder / "mine.txt"
        mine.write_text("mine")
        self.assertIn("exists already", self.ask(terminal, f"/save {mine}"))
        self.assertEqual(mine.read_text(), "mine")
        self.ask(terminal, f"/save {saved}")
        messages = json.loads(saved.read_text())["messages"]
        self.assertEqual([m["role"] for m in messages], ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual(messages[1]["content"], "What is the capital of Peru?")
        self.assertTrue(first.startswith(messages[2]["content"]))
        self.ask(terminal, "/undo")
        self.ask(terminal, "/system")
        self.ask(terminal, f"/save {saved}")
        self.assertEqual(json.loads(saved.read_text())["messages"], messages[1:3])
        self.ask(terminal, "/reset")
        self.ask(terminal, f"/save {saved}")
        self.assertEqual(json.loads(saved.read_text())["messages"], [])
        terminal.type("/exit")
        self.assertEqual(terminal.exit_code(), 0)

    def test_the_same_seed_and_words_give_the_same_conversation(self):
        def talk():
            terminal = self.chat("--temperature", "2", "--seed", "9")
            said = [self.ask(terminal, line) for line in ("Hello", "Go on", "/again")]
            terminal.press(b"\x04")
            self.assertEqual(terminal.exit_code(), 0)
            return said
        once = talk()
        self.assertEqual(once, talk())
        self.assertNotEqual(once[1], once[2])

    def test_control_c_ends_an_answer_and_not_the_conversation(self):
        terminal = self.chat("--max-new-tokens", "200", "--temperature", "30")
        terminal.press(b"\x03")
        terminal.wait_for("Ctrl-D ends the conversation")
        terminal.wait_for("> ")
        terminal.type("Tell me everything.")
        terminal.press(b"\x03")
        terminal.wait_for("> ")
        self.assertIn("did you mean '/save'", self.ask(terminal, "/sve x"))
        terminal.press(b"\x04")
        self.assertEqual(terminal.exit_code(), 0)

    def questions(self, terminal):
        """What the user said, as the conversation is saved."""
        saved = self.folder / "talk.jsonl"
        self.ask(terminal, f"/save {saved}")
        return [m["content"] for m in json.loads(saved.read_text())["messages"] if m["role"] == "user"]

    def test_a_line_is_edited_found_again_and_pasted_whole(self):
        left, up, home, end, back, word_back = b"\x1b[D", b"\x1b[A", b"\x1b[H", b"\x1b[F", b"\x7f", b"\x17"
        terminal = self.chat()
        for keys in ("Gr\u00fcsse \U0001f468\u200d\U0001f469\u200d\U0001f467x".encode(), left, back, end, b"yz", left,
                     back, home, b"\xe4\xb8", b"\xad ", b"\n"):
            terminal.press(keys)
        terminal.wait_for("\u4e2d Gr\u00fcsse xz\n")
        terminal.wait_for("\n> ")
        for keys in (up, word_back, b"again\n"):
            terminal.press(keys)
        terminal.wait_for("again\n")
        terminal.wait_for("\n> ")
        # Longer than a line of the terminal's own may be, and with line ends of its own.
        pasted = "def f(x):\n\treturn x\n\n" + "word " * 1200 + "the end"
        terminal.press(b"\x1b[200~" + pasted.encode() + b"\x1b[201~\n")
        terminal.wait_for("the end\n")
        terminal.wait_for("> ")
        self.ask(terminal, "short")
        terminal.press(up + up)
        terminal.wait_for("the end")
        terminal.press(b"\x15/exit\n")
        self.assertEqual(terminal.exit_code(), 0)

    def test_what_was_typed_is_what_was_asked(self):
        terminal = self.chat("--context", "256")
        for keys in (b"one two", b"\x1bb", b"and ", b"\x05", b"!\n"):
            terminal.press(keys)
        terminal.wait_for("\n> ")
        terminal.press(b"\x1b[200~a\n\tb\n\x1b[201~c\n")
        terminal.wait_for("\n> ")
        self.assertEqual(self.questions(terminal), ["one and two!", "a\n\tb\nc"])
        terminal.press(b"\x04")
        self.assertEqual(terminal.exit_code(), 0)

    def test_a_line_is_drawn_within_the_terminal_that_it_has(self):
        terminal = self.chat(columns=24)
        terminal.press(b"abcdefghij klmnopqrst uvw \xe4\xb8\xad\xe6\x96\x87")
        terminal.wait_for("> abcdefghij klmnopqrst \nuvw \u4e2d\u6587")
        terminal.resize(12)  # which breaks the first row into two
        terminal.press(b"!")
        terminal.wait_for("\x1b[2A\r\x1b[J> abcdefghij\n klmnopqrst \nuvw \u4e2d\u6587!")
        terminal.press(b"\x15\x04")
        self.assertEqual(terminal.exit_code(), 0)

    def test_a_dumb_terminal_has_plain_lines(self):
        terminal = self.chat(term="dumb")
        self.ask(terminal, "Hello")
        self.assertNotIn("\x1b", self.ask(terminal, "/help"))
        terminal.press(b"\x04")
        self.assertEqual(terminal.exit_code(), 0)

    def test_old_turns_are_left_out_when_the_context_is_full(self):
        terminal = self.chat("--context", "96")
        seen = "".join(self.ask(terminal, "What is the capital of Peru, and of Chile?") for _ in range(5))
        self.assertIn("the oldest turns were forgotten", seen)
        self.assertIn("the context only 96", self.ask(terminal, "word " * 100))
        terminal.type("/exit")
        self.assertEqual(terminal.exit_code(), 0)

    def test_a_pipe_is_a_conversation_too(self):
        words = ("chat", self.run_folder, "--template", "chatml", "--max-new-tokens", "4")
        answers = output(*words, input="Hello\nAnd\\\nmore\n").splitlines()
        self.assertGreaterEqual(len(answers), 2)
        self.assertIn("needs a chat template", output("chat", self.run_folder, "--system", "x", input="", code=2))


if __name__ == "__main__":
    unittest.main()
