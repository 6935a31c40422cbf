/// A SPANK plugin: gives the tasks of a Slurm job their priority, their limit of device memory and
/// what they give to programs below them.
/// srun, sbatch and salloc load it to check the options as the user types them; slurmstepd loads it
/// on the node, decides there, and sets up each task.
///
/// A job that asked for a priority and may not have it ends, with a line on its standard error. If
/// Sluice itself is at fault, the job runs without it, after such a line: no fault of ours may end
/// a job.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Slurm's headers come last: they have no include of their own for what they use.
#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "slurm/ceilings.h"
#include "slurm/give.h"
#include "slurm/job_limit.h"
#include "slurm/memory_limit.h"
#include "slurm/task_environment.h"

SPANK_PLUGIN(sluice, 1)

/// What a callback returns that failed: Slurm takes its own codes, which are positive, for success.
enum { kFailed = -1 };

/// Where the prolog leaves a file for each job.
#define SLUICE_SLURM_STATE "/run/sluice/slurm"

/// More than the path of a socket may have.
#define NODE_SIZE 128

enum outcome {
  kOff,      ///< Nobody asked for Sluice: the task is as Slurm made it.
  kPrepare,  ///< The task gets the library and its priority.
  kFault,    ///< The task runs without Sluice, after a line.
  kRefusal,  ///< The task does not run.
};

/// What this process knows. Slurm calls a plugin from one thread, and forks the tasks after
/// init_post_opt.
static struct {
  int priority;          ///< What the user asked for; -1: nothing.
  char memory[32];       ///< The limit that the user asked for; empty: none.
  char give[16];         ///< Empty: the default.
  int default_priority;  ///< What the site gives those who ask for nothing; -1: nothing.
  const char* ceilings;  ///< NULL: no ceilings.
  const char* session;   ///< On nodes without the node service.
  enum outcome outcome;
  char line[512];            ///< For a fault or a refusal.
  unsigned long shm_device;  ///< Of /dev/shm, as the controller has it.
  char node[NODE_SIZE];      ///< The folder of the node service; empty: it does not run here.
  char library[PATH_MAX];
} state = {.priority = -1, .default_priority = -1, .session = "default"};

static void decide(enum outcome outcome, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
static void decide(enum outcome outcome, const char* format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(state.line, sizeof(state.line), format, values);
  va_end(values);
  state.outcome = outcome;
}

static int take_priority(int ignored, const char* text, int remote) {
  (void)ignored;
  (void)remote;
  state.priority = sluice_parse_priority(text);
  if (state.priority >= 0) return ESPANK_SUCCESS;
  slurm_error("sluice: --sluice-priority: '%s' is not a whole number from 0 to 255", text);
  return kFailed;
}

static struct spank_option kOption = {
    .name = "sluice-priority",
    .arginfo = "0-255",
    .usage = "whose GPU work goes first on a shared GPU: 0 is best effort, the higher number wins",
    .has_arg = 1,
    .cb = take_priority,
};

static int take_memory(int ignored, const char* text, int remote) {
  (void)ignored;
  (void)remote;
  if (sluice_is_memory_limit(text) && strlen(text) < sizeof(state.memory)) {
    strcpy(state.memory, text);
    return ESPANK_SUCCESS;
  }
  slurm_error(
      "sluice: --sluice-memory: '%s' is not a size from 1GiB to 16TiB, such as 20GiB or 80GB",
      text);
  return kFailed;
}

static struct spank_option kMemoryOption = {
    .name = "sluice-memory",
    .arginfo = "SIZE",
    .usage = "the most device memory that each program may hold on each GPU, such as 20GiB",
    .has_arg = 1,
    .cb = take_memory,
};

static int take_give(int ignored, const char* text, int remote) {
  (void)ignored;
  (void)remote;
  if (sluice_is_give(text) && strlen(text) < sizeof(state.give)) {
    strcpy(state.give, text);
    return ESPANK_SUCCESS;
  }
  slurm_error(
      "sluice: --sluice-give: '%s' is not 0, or a percentage from 0.1%% to 50%% such as 5%%", text);
  return kFailed;
}

static struct spank_option kGiveOption = {
    .name = "sluice-give",
    .arginfo = "SHARE",
    .usage = "how much longer its jobs may take for programs of lower priority, such as 5% or 0",
    .has_arg = 1,
    .cb = take_give,
};

/// An argument of the plugin's line in plugstack.conf. Returns false if there is no such argument.
static int read_argument(const char* argument) {
  if (strncmp(argument, "ceilings=/", 10) == 0) {
    state.ceilings = argument + strlen("ceilings=");
  } else if (strncmp(argument, "session=", 8) == 0) {
    state.session = argument + 8;
  } else if (strncmp(argument, "default=", 8) == 0) {
    state.default_priority = sluice_parse_priority(argument + 8);
    return state.default_priority >= 0;
  } else {
    return 0;
  }
  return 1;
}

int slurm_spank_init(spank_t spank, int count, char* arguments[]) {
  for (int i = 0; i < count; ++i) {
    if (read_argument(arguments[i])) continue;
    slurm_error("sluice: plugstack.conf: '%s' is not default=0-255, ceilings=/FILE or session=NAME",
                arguments[i]);
    return kFailed;
  }
  struct spank_option* const options[] = {&kOption, &kMemoryOption, &kGiveOption};
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); ++i) {
    const spank_err_t registered = spank_option_register(spank, options[i]);
    if (registered != ESPANK_SUCCESS) return registered;
  }
  return ESPANK_SUCCESS;
}

/// Asks slurmctld, which users cannot deceive as they can the environment.
static void check_ceiling(uint32_t job_id) {
  job_info_msg_t* answer = NULL;
  if (slurm_load_job(&answer, job_id, SHOW_ALL) != SLURM_SUCCESS) {
    decide(kRefusal, "cannot ask slurmctld whether this job may have priority %d: %s",
           state.priority, slurm_strerror(errno));
    return;
  }
  struct sluice_job_names job = {0};
  for (uint32_t i = 0; i < answer->record_count; ++i) {
    const slurm_job_info_t* info = &answer->job_array[i];
    if (info->job_id == job_id) {
      job = (struct sluice_job_names){
          .partition = info->partition, .qos = info->qos, .account = info->account};
    }
  }
  const struct sluice_ceiling ceiling = sluice_find_ceiling(state.ceilings, &job);
  if (ceiling.priority < 0) {
    decide(kRefusal, "no priority above 0 until the site mends this: %s", ceiling.fault);
  } else if (state.priority > ceiling.priority) {
    decide(kRefusal,
           "priority %d is above the ceiling of this job, %d (rule '%s' of the site); ask for %d "
           "or less",
           state.priority, ceiling.priority, ceiling.rule, ceiling.priority);
  }
  slurm_free_job_info_msg(answer);
}

/// What the prolog wrote about this job.
static void read_prolog(uint32_t job_id) {
  char name[64];
  snprintf(name, sizeof(name), SLUICE_SLURM_STATE "/job.%u", job_id);
  FILE* file = fopen(name, "re");
  if (file == NULL) {
    decide(kFault, "%s is missing: the prolog of Sluice did not run on this node", name);
    return;
  }
  char user[64 + NODE_SIZE] = "";
  char gpus[256] = "\n";
  char said[400] = "";
  if (fgets(user, sizeof(user), file) == NULL || fgets(gpus, sizeof(gpus), file) == NULL ||
      sscanf(user, "%*u %lu %127[^\n]", &state.shm_device, state.node) < 1) {
    decide(kFault, "%s is incomplete", name);
  } else if (gpus[0] == '\n') {
    state.outcome = kOff;  // a job without a GPU
  } else if (fgets(said, sizeof(said), file) != NULL && said[0] != '\n') {
    said[strcspn(said, "\n")] = '\0';
    char* reason = said + strcspn(said, " ");
    const int refused = strncmp(said, "refused ", 8) == 0;
    // A job that asked for nothing is never ended by Sluice.
    decide(refused && state.priority >= 0 ? kRefusal : kFault, "%s", reason + (*reason == ' '));
  }
  fclose(file);
}

/// The interposer is in the folder above this plugin's.
static void find_library(void) {
  Dl_info self;
  char path[PATH_MAX];
  if (dladdr(&kOption, &self) == 0 || realpath(self.dli_fname, path) == NULL) {
    decide(kFault, "the plugin cannot find itself");
    return;
  }
  *strrchr(path, '/') = '\0';
  char* folder = strrchr(path, '/');
  if (folder != NULL) *folder = '\0';
  snprintf(state.library, sizeof(state.library), "%.*s/libsluice_intercept.so", PATH_MAX - 32,
           path);
  if (access(state.library, R_OK) != 0 || strpbrk(state.library, " :") != NULL) {
    decide(kFault,
           "%s cannot be preloaded on this node: missing, or a blank or a colon in its path",
           state.library);
  }
}

/// What the job gets from the option is all that its programs may ask the node service for: a job
/// that asked for nothing may not get more by its environment than one that asked.
static void limit_job(uint32_t job_id) {
  const int given = state.priority >= 0 ? state.priority : state.default_priority;
  const int limit = state.outcome == kRefusal || given < 0 ? 0 : given;
  if (state.node[0] != '\0' && sluice_limit_job(state.node, job_id, limit) != 0) {
    slurm_error("sluice: %s/ceilings/job_%u cannot be written: %s", state.node, job_id,
                strerror(errno));
  }
}

/// On the node: as root, before Slurm becomes the user, and after it has read the options.
int slurm_spank_init_post_opt(spank_t spank, int count, char* arguments[]) {
  (void)count;
  (void)arguments;
  uint32_t job_id = 0;
  const int asked = state.priority >= 0 || state.default_priority >= 0 || state.memory[0] != '\0' ||
                    state.give[0] != '\0';
  if ((!asked && state.ceilings == NULL) || !spank_remote(spank)) return ESPANK_SUCCESS;
  state.outcome = kPrepare;
  if (spank_get_item(spank, S_JOB_ID, &job_id) != ESPANK_SUCCESS) {
    decide(kFault, "Slurm does not tell the job's id");
    return ESPANK_SUCCESS;
  }
  read_prolog(job_id);
  // The default is the site's own word.
  if (state.priority > 0 && state.ceilings != NULL) check_ceiling(job_id);
  if (state.ceilings != NULL) limit_job(job_id);
  if (state.outcome == kPrepare) find_library();
  if (!asked) state.outcome = kOff;
  return ESPANK_SUCCESS;
}

/// Replaces a variable of the task by `change(old value, with)`.
static int change(spank_t spank, const char* name, char* (*change_value)(const char*, const char*),
                  const char* with) {
  static char old[1 << 16];
  const spank_err_t found = spank_getenv(spank, name, old, sizeof(old));
  if (found != ESPANK_SUCCESS && found != ESPANK_ENV_NOEXIST) return 0;
  char* value = change_value(found == ESPANK_SUCCESS ? old : NULL, with);
  const int done = value != NULL && spank_setenv(spank, name, value, 1) == ESPANK_SUCCESS;
  free(value);
  return done;
}

/// Whatever the user has in these variables, the program attaches where the other programs of the
/// GPU are.
static int set_session(spank_t spank) {
  if (state.node[0] == '\0') {
    return spank_setenv(spank, "SLUICE_SESSION", state.session, 1) == ESPANK_SUCCESS;
  }
  return spank_setenv(spank, "SLUICE_SESSION", "node", 1) == ESPANK_SUCCESS &&
         spank_setenv(spank, "SLUICE_NODE_DIR", state.node, 1) == ESPANK_SUCCESS;
}

static int prepare(spank_t spank) {
  char priority[16];
  uid_t uid = 0;
  spank_get_item(spank, S_JOB_UID, &uid);
  const struct passwd* user = getpwuid(uid);
  const int given = state.priority >= 0 ? state.priority : state.default_priority;
  snprintf(priority, sizeof(priority), "%d", given >= 0 ? given : 0);
  return change(spank, "LD_PRELOAD", sluice_preload_once, state.library) &&
         spank_setenv(spank, "SLUICE_PRIORITY", priority, 1) == ESPANK_SUCCESS &&
         (state.memory[0] == '\0' ||
          spank_setenv(spank, "SLUICE_MEMORY", state.memory, 1) == ESPANK_SUCCESS) &&
         (state.give[0] == '\0' ||
          spank_setenv(spank, "SLUICE_GIVE", state.give, 1) == ESPANK_SUCCESS) &&
         set_session(spank) &&
         (user == NULL || change(spank, "SLUICE_LABEL", sluice_label_user, user->pw_name));
}

/// The task is in the mount namespace of its job here.
static void check_mounts(void) {
  struct stat shm;
  if (state.node[0] != '\0') {
    char socket[NODE_SIZE + 16];
    snprintf(socket, sizeof(socket), "%s/node.sock", state.node);
    if (access(socket, F_OK) != 0) {
      decide(kFault, "this job does not see %s, the socket of the node service: %s", socket,
             strerror(errno));
    }
  } else if (stat("/dev/shm", &shm) == 0 && shm.st_dev != state.shm_device) {
    decide(kFault,
           "this job has a /dev/shm of its own (job_container/tmpfs), where no controller is");
  }
}

int slurm_spank_task_init(spank_t spank, int count, char* arguments[]) {
  (void)count;
  (void)arguments;
  int task = 0;
  if (state.outcome == kOff) return ESPANK_SUCCESS;
  if (state.outcome == kPrepare) check_mounts();
  if (state.outcome == kPrepare) {
    if (prepare(spank)) return ESPANK_SUCCESS;
    decide(kFault, "the environment of the task could not be set");
  }
  // Standard error is the task's here. One task of a node speaks for all.
  if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0) {
    dprintf(STDERR_FILENO, "sluice: %s%s\n", state.line,
            state.outcome == kRefusal ? "; the job ends" : "; the job runs without Sluice");
  }
  // Not by an error: Slurm starts the task all the same if plugstack.conf has `optional`. This is
  // the process that was to become the task.
  if (state.outcome == kRefusal) _exit(EXIT_FAILURE);
  return ESPANK_SUCCESS;
}
