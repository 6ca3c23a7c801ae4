/* Starts the program that is named by the second argument, in the way that the first one says, and ends as that does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int ended(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A copy of a file that no name leads to. */
static int copy_of(const char *path) {
  int from = open(path, O_RDONLY), to = memfd_create("copy", 0);
  char bytes[65536];
  ssize_t n;
  while ((n = read(from, bytes, sizeof bytes)) > 0)
    if (write(to, bytes, n) != n)
      exit(9);
  close(from);
  return to;
}

static long raw(long number, long a, long b, long c, long d, long e) {
  register long ten __asm__("r10") = d;
  register long eight __asm__("r8") = e;
  long result;
  if (number == SYS_execve)
    __asm__ volatile("mov $59, %%eax\n\tsyscall" : "=a"(result) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  else
    __asm__ volatile("mov $322, %%eax\n\tsyscall" : "=a"(result) : "D"(a), "S"(b), "d"(c), "r"(ten), "r"(eight) : "rcx", "r11", "memory");
  return result;
}

int main(int count, char **arguments) {
  if (count < 3)
    return 2;
  const char *how = arguments[1];
  char *program = arguments[2], **rest = arguments + 2;
  char line[4096] = "";
  for (int i = 2; i < count; i++) {
    strcat(line, arguments[i]);
    strcat(line, " ");
  }
  pid_t child;
  if (!strcmp(how, "execve"))
    execve(program, rest, environ);
  else if (!strcmp(how, "execl"))
    execl(program, program, rest[1], (char *)0);
  else if (!strcmp(how, "execvp"))
    execvp(program, rest);
  else if (!strcmp(how, "fexecve"))
    fexecve(open(program, O_RDONLY | O_CLOEXEC), rest, environ);
  else if (!strcmp(how, "fexecve-path"))
    fexecve(open(program, O_PATH | O_CLOEXEC), rest, environ);
  else if (!strcmp(how, "fexecve-copy"))
    fexecve(copy_of(program), rest, environ);
  else if (!strcmp(how, "execveat"))
    syscall(SYS_execveat, AT_FDCWD, program, rest, environ, 0);
  else if (!strcmp(how, "execveat-copy"))
    syscall(SYS_execveat, copy_of(program), "", rest, environ, AT_EMPTY_PATH);
  else if (!strcmp(how, "execve-by-number"))
    syscall(SYS_execve, program, rest, environ);
  else if (!strcmp(how, "execve-raw"))
    raw(SYS_execve, (long)program, (long)rest, (long)environ, 0, 0);
  else if (!strcmp(how, "execveat-raw"))
    raw(SYS_execveat, AT_FDCWD, (long)program, (long)rest, (long)environ, 0);
  else if (!strcmp(how, "handle"))
    ((int (*)(const char *, char **, char **))dlsym(dlopen("libc.so.6", RTLD_NOW), "execve"))(program, rest, environ);
  else if (!strcmp(how, "no-environment")) {
    char *none[] = {0};
    execve(program, rest, none);
  } else if (!strcmp(how, "large-environment")) {
    for (int i = 0; i < 3000; i++) {
      char entry[32];
      sprintf(entry, "ENTRY%d=1", i);
      putenv(strdup(entry));
    }
    execve(program, rest, environ);
  } else if (!strcmp(how, "own-preload")) {
    setenv("LD_PRELOAD", "libdl.so.2", 1);
    execve(program, rest, environ);
  } else if (!strcmp(how, "system")) {
    int status = system(line);
    return WEXITSTATUS(status);
  } else if (!strcmp(how, "popen")) {
    FILE *pipe = popen(line, "r");
    char text[256] = "";
    while (fgets(text, sizeof text, pipe))
      fputs(text, stdout);
    return WEXITSTATUS(pclose(pipe));
  } else if (!strcmp(how, "posix_spawn")) {
    if (posix_spawn(&child, program, 0, 0, rest, environ))
      return 8;
    return ended(child);
  } else if (!strcmp(how, "posix_spawnp")) {
    if (posix_spawnp(&child, program, 0, 0, rest, environ))
      return 8;
    return ended(child);
  } else if (!strcmp(how, "vfork")) {
    child = vfork();
    if (child == 0) {
      execve(program, rest, environ);
      _exit(7);
    }
    return ended(child);
  } else if (!strcmp(how, "twice")) {
    for (int i = 0; i < 2; i++) {
      child = fork();
      if (child == 0) {
        execvp(program, rest);
        _exit(7);
      }
      int status = ended(child);
      if (i)
        return status;
    }
  } else
    return 3;
  perror(how);
  return 9;
}
