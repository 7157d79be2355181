"""A controller made with os-ken: a learning switch, with groups and meters. It tells what it sees and
what the switch answers, one line of JSON each, on standard output.

app.py PORT
"""

import json
import sys

from os_ken.lib import hub

hub.patch(thread=False)

from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3


def tell(what, **rest):
    print(json.dumps({"event": what, **rest}), flush=True)


class Switch(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}
        self.packet_ins = 0
        hub.spawn(self.count)

    def count(self):
        """The number of packet-ins, whenever it has changed."""
        told = 0
        while True:
            hub.sleep(0.1)
            if self.packet_ins != told:
                told = self.packet_ins
                tell("packet_ins", n=told)

    def add_flow(self, dp, priority, match, actions, table=0, meter=None):
        p, o = dp.ofproto_parser, dp.ofproto
        inst = [p.OFPInstructionActions(o.OFPIT_APPLY_ACTIONS, actions)]
        if meter:
            inst.insert(0, p.OFPInstructionMeter(meter, o.OFPIT_METER))
        dp.send_msg(p.OFPFlowMod(datapath=dp, priority=priority, match=match, instructions=inst, table_id=table))

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, ev):
        dp = ev.msg.datapath
        p, o = dp.ofproto_parser, dp.ofproto
        tell("features", dpid=dp.id, tables=ev.msg.n_tables, buffers=ev.msg.n_buffers)
        to_controller = [p.OFPActionOutput(o.OFPP_CONTROLLER, o.OFPCML_NO_BUFFER)]
        self.add_flow(dp, 0, p.OFPMatch(), to_controller)
        self.groups(dp)
        self.meters(dp)
        dp.send_msg(p.OFPPortDescStatsRequest(dp, 0))
        dp.send_msg(p.OFPGroupDescStatsRequest(dp, 0))
        dp.send_msg(p.OFPGroupFeaturesStatsRequest(dp, 0))
        dp.send_msg(p.OFPGroupStatsRequest(dp, 0, o.OFPG_ALL))
        dp.send_msg(p.OFPMeterConfigStatsRequest(dp, 0, o.OFPM_ALL))
        dp.send_msg(p.OFPMeterFeaturesStatsRequest(dp, 0))
        dp.send_msg(p.OFPMeterStatsRequest(dp, 0, o.OFPM_ALL))
        dp.send_msg(p.OFPTableStatsRequest(dp, 0))
        dp.send_msg(p.OFPRoleRequest(dp, o.OFPCR_ROLE_MASTER, 7))
        # What no switch can do: a group and a meter that exist, and a group that does not.
        dp.send_msg(p.OFPGroupMod(dp, o.OFPGC_ADD, o.OFPGT_ALL, 1, []))
        dp.send_msg(p.OFPMeterMod(dp, o.OFPMC_ADD, o.OFPMF_KBPS, 1, [p.OFPMeterBandDrop(100, 10)]))
        self.add_flow(dp, 7, p.OFPMatch(in_port=9), [p.OFPActionGroup(99)])
        dp.send_msg(p.OFPBarrierRequest(dp))

    def groups(self, dp):
        p, o = dp.ofproto_parser, dp.ofproto
        out = lambda port: [p.OFPActionOutput(port)]
        both = [p.OFPBucket(actions=out(2)), p.OFPBucket(actions=out(3))]
        weighted = [p.OFPBucket(weight=1, actions=out(2)), p.OFPBucket(weight=3, actions=out(3))]
        live = [p.OFPBucket(watch_port=2, watch_group=o.OFPG_ANY, actions=out(2)),
                p.OFPBucket(watch_port=3, watch_group=o.OFPG_ANY, actions=out(3))]
        dp.send_msg(p.OFPGroupMod(dp, o.OFPGC_ADD, o.OFPGT_ALL, 1, both))
        dp.send_msg(p.OFPGroupMod(dp, o.OFPGC_ADD, o.OFPGT_SELECT, 2, weighted))
        dp.send_msg(p.OFPGroupMod(dp, o.OFPGC_ADD, o.OFPGT_FF, 3, live))
        dp.send_msg(p.OFPGroupMod(dp, o.OFPGC_ADD, o.OFPGT_INDIRECT, 4, both[:1]))
        for group, proto in ((1, 100), (2, 101), (3, 102), (4, 103)):
            match = p.OFPMatch(eth_type=0x0800, ip_proto=proto)
            self.add_flow(dp, 50, match, [p.OFPActionGroup(group)])

    def meters(self, dp):
        p, o = dp.ofproto_parser, dp.ofproto
        dp.send_msg(p.OFPMeterMod(dp, o.OFPMC_ADD, o.OFPMF_PKTPS | o.OFPMF_BURST, 1, [p.OFPMeterBandDrop(1, 4)]))
        match = p.OFPMatch(eth_type=0x0800, ip_proto=104)
        self.add_flow(dp, 50, match, [p.OFPActionOutput(2)], meter=1)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev):
        self.packet_ins += 1
        msg = ev.msg
        dp, in_port = msg.datapath, msg.match["in_port"]
        p, o = dp.ofproto_parser, dp.ofproto
        eth = packet.Packet(msg.data).get_protocols(ethernet.ethernet)[0]
        if eth.ethertype == 0x9000:
            # Only to be counted.
            return
        known = self.ports.setdefault(dp.id, {})
        known[eth.src] = in_port
        out = known.get(eth.dst, o.OFPP_FLOOD)
        actions = [p.OFPActionOutput(out)]
        if out != o.OFPP_FLOOD:
            self.add_flow(dp, 10, p.OFPMatch(in_port=in_port, eth_dst=eth.dst, eth_src=eth.src), actions)
        dp.send_msg(p.OFPPacketOut(datapath=dp, buffer_id=o.OFP_NO_BUFFER, in_port=in_port, actions=actions, data=msg.data))
        tell("packet_in", src=eth.src, dst=eth.dst, in_port=in_port, reason=msg.reason, length=msg.total_len)

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def port_desc(self, ev):
        tell("ports", ports=sorted([x.port_no, x.name.decode()] for x in ev.msg.body))

    @set_ev_cls(ofp_event.EventOFPGroupDescStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def group_desc(self, ev):
        tell("groups", groups=sorted([g.group_id, g.type, [b.weight for b in g.buckets]] for g in ev.msg.body))

    @set_ev_cls(ofp_event.EventOFPGroupFeaturesStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def group_features(self, ev):
        tell("group_features", types=ev.msg.body.types, capabilities=ev.msg.body.capabilities)

    @set_ev_cls(ofp_event.EventOFPGroupStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def group_stats(self, ev):
        tell("group_stats", refs=sorted([g.group_id, g.ref_count] for g in ev.msg.body))

    @set_ev_cls(ofp_event.EventOFPMeterConfigStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def meter_config(self, ev):
        tell("meters", meters=[[m.meter_id, m.flags, [[b.rate, b.burst_size] for b in m.bands]] for m in ev.msg.body])

    @set_ev_cls(ofp_event.EventOFPMeterFeaturesStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def meter_features(self, ev):
        tell("meter_features", bands=[m.band_types for m in ev.msg.body])

    @set_ev_cls(ofp_event.EventOFPMeterStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def meter_stats(self, ev):
        tell("meter_stats", flows=[[m.meter_id, m.flow_count] for m in ev.msg.body])

    @set_ev_cls(ofp_event.EventOFPTableStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def table_stats(self, ev):
        tell("tables", active=[[t.table_id, t.active_count] for t in ev.msg.body if t.active_count])

    @set_ev_cls(ofp_event.EventOFPRoleReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def role(self, ev):
        tell("role", role=ev.msg.role, generation=ev.msg.generation_id)

    @set_ev_cls(ofp_event.EventOFPPortStatus, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def port_status(self, ev):
        tell("port_status", reason=ev.msg.reason, port=ev.msg.desc.port_no, config=ev.msg.desc.config)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def error(self, ev):
        tell("error", type=ev.msg.type, code=ev.msg.code)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def barrier(self, _):
        tell("barrier")


if __name__ == "__main__":
    cfg.CONF(args=["--ofp-tcp-listen-port", sys.argv[1], "--ofp-listen-host", "127.0.0.1"], project="os_ken")
    tell("starts")
    app_manager.AppManager.run_apps(["os_ken.controller.ofp_handler", "__main__"])
