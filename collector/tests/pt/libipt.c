/* Reads PT streams with libipt, for comparison.
 *
 * Standard input: streams, each as a 32-bit length and its bytes.
 * `packets`: one line for each packet, from the first byte on: offset, length, name, fields.
 * `events`: one line for each stream: number and hash of the ptwrite events from the first PSB on.
 * `time-packets`, `time-events`: nanoseconds for all streams, without output per packet.
 */
#include <inttypes.h>
#include <intel-pt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void print(uint64_t at, const struct pt_packet *p)
{
	printf("%" PRIu64 " %u ", at, p->size);
	switch (p->type) {
	case ppt_pad: puts("pad"); return;
	case ppt_psb: puts("psb"); return;
	case ppt_psbend: puts("psbend"); return;
	case ppt_stop: puts("stop"); return;
	case ppt_ovf: puts("ovf"); return;
	case ppt_fup: printf("fup %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tip: printf("tip %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tip_pge: printf("pge %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tip_pgd: printf("pgd %d %" PRIx64 "\n", p->payload.ip.ipc, p->payload.ip.ip); return;
	case ppt_tnt_8:
	case ppt_tnt_64: printf("tnt %u %" PRIx64 "\n", p->payload.tnt.bit_size, p->payload.tnt.payload); return;
	case ppt_mode:
		if (p->payload.mode.leaf == pt_mol_exec)
			printf("exec %u %u\n", p->payload.mode.bits.exec.csl, p->payload.mode.bits.exec.csd);
		else
			printf("tsx %u %u\n", p->payload.mode.bits.tsx.intx, p->payload.mode.bits.tsx.abrt);
		return;
	case ppt_pip: printf("pip %" PRIx64 " %u\n", p->payload.pip.cr3, p->payload.pip.nr); return;
	case ppt_vmcs: printf("vmcs %" PRIx64 "\n", p->payload.vmcs.base); return;
	case ppt_cbr: printf("cbr %u\n", p->payload.cbr.ratio); return;
	case ppt_tsc: printf("tsc %" PRIx64 "\n", p->payload.tsc.tsc); return;
	case ppt_tma: printf("tma %x %x\n", p->payload.tma.ctc, p->payload.tma.fc); return;
	case ppt_mtc: printf("mtc %x\n", p->payload.mtc.ctc); return;
	case ppt_cyc: printf("cyc %" PRIx64 "\n", p->payload.cyc.value); return;
	case ppt_mnt: printf("mnt %" PRIx64 "\n", p->payload.mnt.payload); return;
	case ppt_exstop: printf("exstop %u\n", p->payload.exstop.ip); return;
	case ppt_mwait: printf("mwait %x %x\n", p->payload.mwait.hints, p->payload.mwait.ext); return;
	case ppt_pwre:
		printf("pwre %u %u\n", p->payload.pwre.state, p->payload.pwre.sub_state);
		return;
	case ppt_pwrx:
		printf("pwrx %u %u %u\n", p->payload.pwrx.last, p->payload.pwrx.deepest,
		       p->payload.pwrx.interrupt | p->payload.pwrx.store << 1 | p->payload.pwrx.autonomous << 2);
		return;
	case ppt_ptw:
		printf("ptw %u %" PRIx64 " %u\n", p->payload.ptw.plc, p->payload.ptw.payload, p->payload.ptw.ip);
		return;
#ifdef NEW_PACKETS
	case ppt_cfe: printf("cfe %u %u %u\n", p->payload.cfe.type, p->payload.cfe.vector, p->payload.cfe.ip); return;
	case ppt_evd: printf("evd %u %" PRIx64 "\n", p->payload.evd.type, p->payload.evd.payload); return;
	case ppt_trig:
		printf("trig %u %u %u %d\n", p->payload.trig.trbv, p->payload.trig.ip, p->payload.trig.mult,
		       p->payload.trig.icntv ? (int)p->payload.trig.icnt : -1);
		return;
#endif
	default: puts("other"); return;
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
		printf("%" PRIu64 " end %s\n", at, status == -pte_eos ? "eos" : "bad");
	pt_pkt_free_decoder(decoder);
}

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

	while (fread(&length, 4, 1, stdin) == 1) {
		uint8_t *bytes = malloc(length + 1);
		struct pt_config config;
		struct timespec from, to;

		if (!bytes || fread(bytes, 1, length, stdin) != length)
			return 1;
		pt_config_init(&config);
		config.begin = bytes;
		config.end = bytes + length;
		clock_gettime(CLOCK_MONOTONIC, &from);
		if (strstr(mode, "packets"))
			packets(&config, mode[0] == 't');
		else
			events(&config);
		clock_gettime(CLOCK_MONOTONIC, &to);
		spent += (to.tv_sec - from.tv_sec) * 1000000000ull + to.tv_nsec - from.tv_nsec;
		free(bytes);
	}
	if (mode[0] == 't')
		printf("%" PRIu64 "\n", spent);
	return 0;
}
