/* Calls forms.S. */
#include "mix.h"

uint64_t forms(void);

int main(void) {
    for (int i = 0; i < 10; i++)
        mix(forms());
    report("forms");
    return 0;
}
