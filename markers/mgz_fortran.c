/* The markers as functions, for languages that cannot include mgz.h: compile this file and link it
 * in. */
#include "mgz.h"

void mgz_start_(void) __attribute__((noinline));
void mgz_stop_(void) __attribute__((noinline));

void mgz_start_(void)
{
    mgz_start();
}

void mgz_stop_(void)
{
    mgz_stop();
}
