/* Reads PT streams with libipt, for comparison.
 *
 * Standard input: streams, each as a 32-bit length and its bytes.
 * `packets`: one line for each packet, from the first byte on: offset, length, name, fields.
 * `events`: one line for each stream: number and hash of the ptwrite events from the first PSB on.
 * `time-packets`, `time-events`: nanoseconds of CPU time for all streams, without output per packet.
 *
 * With MGZ_LIBRARY, a function in place of the program, for the fuzz target.
 */
#include <inttypes.h>
#include <intel-pt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static FILE *out;

static void print(uint64_t at, const struct pt_packet *p)
{
	fprintf(out, "%" PRIu64 " %u ", at, p->size);
	switch (p->type) {
	case ppt_pad: fputs("pad\n", out); return;
	case ppt_psb: fputs("psb\n", out); return;
	case ppt_psbend: fputs("psbend\n", out); return;
	case ppt_stop: fputs("stop\n", out); return;
	case ppt_ovf: fputs("ovf\n", out); return;
	case ppt_fup: fprintf(out, "fup %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tip: fprintf(out, "tip %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tip_pge: fprintf(out, "pge %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tip_pgd: fprintf(out, "pgd %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tnt_8:
	case ppt_tnt_64: fprintf(out, "tnt %u %" PRIx64 "\n", p->payload.tnt.bit_size, p->payload.tnt.payload); return;
	case ppt_mode:
		if (p->payload.mode.leaf == pt_mol_exec)
			fprintf(out, "exec %u %u\n", p->payload.mode.bits.exec.csl, p->payload.mode.bits.exec.csd);
		else
			fprintf(out, "tsx %u %u\n", p->payload.mode.bits.tsx.intx, p->payload.mode.bits.tsx.abrt);
		return;
	case ppt_pip: fprintf(out, "pip %" PRIx64 " %u\n", p->payload.pip.cr3, p->payload.pip.nr); return;
	case ppt_vmcs: fprintf(out, "vmcs %" PRIx64 "\n", p->payload.vmcs.base); return;
	case ppt_cbr: fprintf(out, "cbr %u\n", p->payload.cbr.ratio); return;
	case ppt_tsc: fprintf(out, "tsc %" PRIx64 "\n", p->payload.tsc.tsc); return;
	case ppt_tma: fprintf(out, "tma %x %x\n", p->payload.tma.ctc, p->payload.tma.fc); return;
	case ppt_mtc: fprintf(out, "mtc %x\n", p->payload.mtc.ctc); return;
	case ppt_cyc: fprintf(out, "cyc %" PRIx64 "\n", p->payload.cyc.value); return;
	case ppt_mnt: fprintf(out, "mnt %" PRIx64 "\n", p->payload.mnt.payload); return;
	case ppt_exstop: fprintf(out, "exstop %u\n", p->payload.exstop.ip); return;
	case ppt_mwait: fprintf(out, "mwait %x %x\n", p->payload.mwait.hints, p->payload.mwait.ext); return;
	case ppt_pwre:
		fprintf(out, "pwre %u %u\n", p->payload.pwre.state, p->payload.pwre.sub_state);
		return;
	case ppt_pwrx:
		fprintf(out, "pwrx %u %u %u\n", p->payload.pwrx.last, p->payload.pwrx.deepest,
		       p->payload.pwrx.interrupt | p->payload.pwrx.store << 1 | p->payload.pwrx.autonomous << 2);
		return;
	case ppt_ptw:
		fprintf(out, "ptw %u %" PRIx64 " %u\n", p->payload.ptw.plc, p->payload.ptw.payload, p->payload.ptw.ip);
		return;
#ifdef NEW_PACKETS
	case ppt_cfe: fprintf(out, "cfe %u %u %u\n", p->payload.cfe.type, p->payload.cfe.vector, p->payload.cfe.ip); return;
	case ppt_evd: fprintf(out, "evd %u %" PRIx64 "\n", p->payload.evd.type, p->payload.evd.payload); return;
	case ppt_trig:
		fprintf(out, "trig %u %u %u %d\n", p->payload.trig.trbv, p->payload.trig.ip, p->payload.trig.mult,
		       p->payload.trig.icntv ? (int)p->payload.trig.icnt : -1);
		return;
#endif
	default: fputs("other\n", out); return;
	}
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

static void packets(const struct pt_config *config, int quiet)
{
	struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(config);
	struct pt_packet packet;
	uint64_t at = 0, count = 0;
	int status = pt_pkt_sync_set(decoder, 0);

	while (status >= 0) {
		pt_pkt_get_offset(decoder, &at);
		status = pt_pkt_next(decoder, &packet, sizeof(packet));
		if (status >= 0) {
			count += packet.type == ppt_ptw;
			if (!quiet)
				print(at, &packet);
		}
	}
	if (quiet)
		fprintf(stderr, "%" PRIu64 " ptw packets\n", count);
	else
		fprintf(out, "%" PRIu64 " end %s\n", at, status == -pte_eos ? "eos" : "bad");
	pt_pkt_free_decoder(decoder);
}

#ifdef MGZ_LIBRARY
/* The packets of `bytes` as text, to be freed by the caller. */
char *mgz_libipt_packets(uint8_t *bytes, size_t length, size_t *text_length)
{
	struct pt_config config;
	char *text = NULL;

	pt_config_init(&config);
	config.begin = bytes;
	config.end = bytes + length;
	out = open_memstream(&text, text_length);
	if (!out)
		return NULL;
	packets(&config, 0);
	fclose(out);
	return text;
}
#else
static void events(const struct pt_config *config)
{
	struct pt_query_decoder *decoder = pt_qry_alloc_decoder(config);
	uint64_t count = 0, hash = 0, ip;
	int status;

	while ((status = pt_qry_sync_forward(decoder, &ip)) >= 0) {
		struct pt_event event;

		while (status >= 0 && status & pts_event_pending) {
			status = pt_qry_event(decoder, &event, sizeof(event));
			if (status >= 0 && event.type == ptev_ptwrite) {
				count++;
				hash = mix(mix(hash, event.ip_suppressed ? 0 : event.variant.ptwrite.ip),
					   event.variant.ptwrite.payload);
			}
		}
	}
	printf("%" PRIu64 " %016" PRIx64 "\n", count, hash);
	pt_qry_free_decoder(decoder);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "packets";
	uint32_t length;
	uint64_t spent = 0;

	out = stdout;
	while (fread(&length, 4, 1, stdin) == 1) {
		uint8_t *bytes = malloc(length + 1);
		struct pt_config config;
		struct timespec from, to;

		if (!bytes || fread(bytes, 1, length, stdin) != length)
			return 1;
		pt_config_init(&config);
		config.begin = bytes;
		config.end = bytes + length;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
		if (strstr(mode, "packets"))
			packets(&config, mode[0] == 't');
		else
			events(&config);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
		spent += (to.tv_sec - from.tv_sec) * 1000000000ull + to.tv_nsec - from.tv_nsec;
		free(bytes);
	}
	if (mode[0] == 't')
		printf("%" PRIu64 "\n", spent);
	return 0;
}
#endif
