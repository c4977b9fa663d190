/* The functions that take a count: `N` is its type, `D` that of a displacement, LARGE(name) the name with or without _c.
 * Collective calls are attributed to pairs as by the algorithm that moves least; docs/how-to/users/profiling.md says how. */

/* -- point to point ------------------------------------------------------------------------------------------------ */
#define TO const void *buf, N count, H type, int dest, int tag, H comm
#define TO_WORDS buf, count, type, dest, tag, comm
#define FROM void *buf, N count, H type, int source, int tag, H comm
#define FROM_WORDS buf, count, type, source, tag, comm

#define SEND(name)                                                                                  \
  EACH(LARGE(name), POINT_TO_POINT, (TO), (TO_WORDS), peer_in(comm, dest), if (dest >= 0) {         \
    uint64_t bytes = bytes_of(count, type);                                                         \
    MOVED(self, bytes), sent(who, bytes), waited(who, time), timed(who, bytes, time);               \
  })
#define ISEND(name)                                                                                 \
  EACH(LARGE(name), POINT_TO_POINT, (TO, void *request), (TO_WORDS, request), peer_in(comm, dest),  \
       if (dest >= 0) {                                                                             \
         uint64_t bytes = bytes_of(count, type);                                                    \
         MOVED(self, bytes), sent(who, bytes);                                                      \
       } remember_at(request, who, ONCE, comm, 0))
#define SEND_INIT(name)                                                                             \
  EACH(LARGE(name), POINT_TO_POINT, (TO, void *request), (TO_WORDS, request), peer_in(comm, dest),  \
       remember_at(request, who, dest >= 0 ? SENDS : RECEIVES, comm, bytes_of(count, type)))
SEND(Send)
SEND(Bsend)
SEND(Ssend)
SEND(Rsend)
ISEND(Isend)
ISEND(Ibsend)
ISEND(Issend)
ISEND(Irsend)
SEND_INIT(Send_init)
SEND_INIT(Bsend_init)
SEND_INIT(Ssend_init)
SEND_INIT(Rsend_init)

EACH(LARGE(Recv), POINT_TO_POINT, (FROM, void *status), (FROM_WORDS, own_status(&status)), peer_in(comm, source),
     int from = who < 0 && !error ? peer_in(comm, source_of(status)) : who;
     waited(from, time), timed(from, received(status, count, type), time))
EACH(LARGE(Irecv), POINT_TO_POINT, (FROM, void *request), (FROM_WORDS, request), peer_in(comm, source),
     remember_at(request, who, ONCE, comm, 0))
EACH(LARGE(Recv_init), POINT_TO_POINT, (FROM, void *request), (FROM_WORDS, request), peer_in(comm, source),
     remember_at(request, who, RECEIVES, comm, 0))
EACH_TIMED(LARGE(Mrecv), POINT_TO_POINT, 5)
EACH(LARGE(Imrecv), POINT_TO_POINT, (void *buf, N count, H type, void *message, void *request),
     (buf, count, type, message, request), -1, forget_at(request))

#define BOTH_WAYS const void *sendbuf, N sendcount, H sendtype, int dest, int sendtag, void *recvbuf, N recvcount, H recvtype, \
                  int source, int recvtag, H comm
#define BOTH_WAYS_WORDS sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm
#define EXCHANGED(count, type)                                   \
  if (dest >= 0) {                                               \
    uint64_t bytes = bytes_of(count, type);                      \
    MOVED(self, bytes), sent(peer_in(comm, dest), bytes);        \
  }
EACH(LARGE(Sendrecv), POINT_TO_POINT, (BOTH_WAYS, void *status), (BOTH_WAYS_WORDS, status), peer_in(comm, source),
     EXCHANGED(sendcount, sendtype) waited(who, time), timed(who, bytes_of(recvcount, recvtype), time))
EACH(LARGE(Sendrecv_replace), POINT_TO_POINT,
     (void *buf, N count, H type, int dest, int sendtag, int source, int recvtag, H comm, void *status),
     (buf, count, type, dest, sendtag, source, recvtag, comm, status), peer_in(comm, source),
     EXCHANGED(count, type) waited(who, time), timed(who, bytes_of(count, type), time))
EACH(LARGE(Isendrecv), POINT_TO_POINT, (BOTH_WAYS, void *request), (BOTH_WAYS_WORDS, request), peer_in(comm, source),
     EXCHANGED(sendcount, sendtype) remember_at(request, who, ONCE, comm, 0))
EACH(LARGE(Isendrecv_replace), POINT_TO_POINT,
     (void *buf, N count, H type, int dest, int sendtag, int source, int recvtag, H comm, void *request),
     (buf, count, type, dest, sendtag, source, recvtag, comm, request), peer_in(comm, source),
     EXCHANGED(count, type) remember_at(request, who, ONCE, comm, 0))

/* -- collective calls: blocking, nonblocking and persistent in one line ------------------------------------------------ */
#define PARTS(...) __VA_ARGS__
/* `flow` gives `use` (SENDS_ALL, SENDS_ONE or ONCE for nothing), `to` (a rank) and `bytes` for each receiver */
#define FLOW(...)        \
  enum use use = ONCE;   \
  int to = -1;           \
  uint64_t bytes = 0;    \
  __VA_ARGS__;           \
  (void)to
#define COLLECTIVELY(name, iname, initname, params, words, ...)                                                         \
  EACH(LARGE(name), COLLECTIVE, (PARTS params), (PARTS words), -1, FLOW(__VA_ARGS__); flowed(self, comm, use, to, bytes))      \
  EACH(LARGE(iname), COLLECTIVE, (PARTS params, void *request), (PARTS words, request), -1, FLOW(__VA_ARGS__);                 \
       flowed(self, comm, use, to, bytes); forget_at(request))                                                          \
  EACH(LARGE(initname), COLLECTIVE, (PARTS params, H info, void *request), (PARTS words, info, request), -1,            \
       FLOW(__VA_ARGS__); remember_flow(request, comm, use, to, bytes))
/* those whose blocks differ: counted one by one; a persistent one is not */
#define UNEVENLY(name, iname, initname, params, words, ...)                                                             \
  EACH(LARGE(name), COLLECTIVE, (PARTS params), (PARTS words), -1, __VA_ARGS__)                                              \
  EACH(LARGE(iname), COLLECTIVE, (PARTS params, void *request), (PARTS words, request), -1, __VA_ARGS__; forget_at(request))   \
  EACH(LARGE(initname), COLLECTIVE, (PARTS params, H info, void *request), (PARTS words, info, request), -1,            \
       forget_at(request))

#define ONE const void *sendbuf, void *recvbuf, N count, H type, H op
#define ONE_WORDS sendbuf, recvbuf, count, type, op
#define SEVERAL const void *sendbuf, N sendcount, H sendtype, void *recvbuf, N recvcount, H recvtype
#define SEVERAL_WORDS sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype
#define SEND_BYTES bytes_of(sendbuf == in_place ? recvcount : sendcount, sendbuf == in_place ? recvtype : sendtype)

COLLECTIVELY(Bcast, Ibcast, Bcast_init, (void *buf, N count, H type, int root, H comm), (buf, count, type, root, comm),
             if (rank_in(comm) == root) use = SENDS_ALL; bytes = bytes_of(count, type))
COLLECTIVELY(Reduce, Ireduce, Reduce_init, (ONE, int root, H comm), (ONE_WORDS, root, comm),
             if (rank_in(comm) != root) use = SENDS_ONE; to = root; bytes = bytes_of(count, type))
COLLECTIVELY(Allreduce, Iallreduce, Allreduce_init, (ONE, H comm), (ONE_WORDS, comm),
             use = SENDS_ALL; bytes = share_of(comm, 2 * bytes_of(count, type)))
COLLECTIVELY(Scan, Iscan, Scan_init, (ONE, H comm), (ONE_WORDS, comm),
             to = next_rank(comm); if (to >= 0) use = SENDS_ONE; bytes = bytes_of(count, type))
COLLECTIVELY(Exscan, Iexscan, Exscan_init, (ONE, H comm), (ONE_WORDS, comm),
             to = next_rank(comm); if (to >= 0) use = SENDS_ONE; bytes = bytes_of(count, type))
COLLECTIVELY(Reduce_scatter_block, Ireduce_scatter_block, Reduce_scatter_block_init, (ONE, H comm), (ONE_WORDS, comm),
             use = SENDS_ALL; bytes = bytes_of(count, type))
COLLECTIVELY(Reduce_scatter, Ireduce_scatter, Reduce_scatter_init,
             (const void *sendbuf, void *recvbuf, const N *counts, H type, H op, H comm),
             (sendbuf, recvbuf, counts, type, op, comm),
             use = SENDS_ALL; for (int at = 0; at < size_in(comm); at++) bytes += bytes_of(counts[at], type);
             bytes = share_of(comm, bytes))
COLLECTIVELY(Gather, Igather, Gather_init, (SEVERAL, int root, H comm), (SEVERAL_WORDS, root, comm),
             if (rank_in(comm) != root) use = SENDS_ONE, bytes = bytes_of(sendcount, sendtype); to = root)
COLLECTIVELY(Gatherv, Igatherv, Gatherv_init,
             (const void *sendbuf, N sendcount, H sendtype, void *recvbuf, const N *counts, const D *places, H recvtype, int root, H comm),
             (sendbuf, sendcount, sendtype, recvbuf, counts, places, recvtype, root, comm),
             if (rank_in(comm) != root) use = SENDS_ONE, bytes = bytes_of(sendcount, sendtype); to = root)
COLLECTIVELY(Scatter, Iscatter, Scatter_init, (SEVERAL, int root, H comm), (SEVERAL_WORDS, root, comm),
             if (rank_in(comm) == root) use = SENDS_ALL, bytes = bytes_of(sendcount, sendtype))
COLLECTIVELY(Allgather, Iallgather, Allgather_init, (SEVERAL, H comm), (SEVERAL_WORDS, comm),
             use = SENDS_ALL; bytes = SEND_BYTES)
COLLECTIVELY(Allgatherv, Iallgatherv, Allgatherv_init,
             (const void *sendbuf, N sendcount, H sendtype, void *recvbuf, const N *counts, const D *places, H recvtype, H comm),
             (sendbuf, sendcount, sendtype, recvbuf, counts, places, recvtype, comm),
             use = SENDS_ALL; bytes = sendbuf != in_place ? bytes_of(sendcount, sendtype)
                              : rank_in(comm) >= 0 ? bytes_of(counts[rank_in(comm)], recvtype) : 0)
COLLECTIVELY(Alltoall, Ialltoall, Alltoall_init, (SEVERAL, H comm), (SEVERAL_WORDS, comm),
             use = SENDS_ALL; bytes = SEND_BYTES)

UNEVENLY(Scatterv, Iscatterv, Scatterv_init,
         (const void *sendbuf, const N *counts, const D *places, H sendtype, void *recvbuf, N recvcount, H recvtype, int root, H comm),
         (sendbuf, counts, places, sendtype, recvbuf, recvcount, recvtype, root, comm),
         if (rank_in(comm) == root) for (int at = 0; at < size_in(comm); at++)
             flowed(self, comm, SENDS_ONE, at, bytes_of(counts[at], sendtype)))
UNEVENLY(Alltoallv, Ialltoallv, Alltoallv_init,
         (const void *sendbuf, const N *counts, const D *places, H sendtype, void *recvbuf, const N *recvcounts, const D *recvplaces, H recvtype, H comm),
         (sendbuf, counts, places, sendtype, recvbuf, recvcounts, recvplaces, recvtype, comm),
         const N *mine = sendbuf == in_place ? recvcounts : counts; H of = sendbuf == in_place ? recvtype : sendtype;
         for (int at = 0; at < size_in(comm); at++) flowed(self, comm, SENDS_ONE, at, bytes_of(mine[at], of)))
UNEVENLY(Alltoallw, Ialltoallw, Alltoallw_init,
         (const void *sendbuf, const N *counts, const D *places, void *sendtypes, void *recvbuf, const N *recvcounts, const D *recvplaces, void *recvtypes, H comm),
         (sendbuf, counts, places, sendtypes, recvbuf, recvcounts, recvplaces, recvtypes, comm),
         const N *mine = sendbuf == in_place ? recvcounts : counts; void *of = sendbuf == in_place ? recvtypes : sendtypes;
         for (int at = 0; at < size_in(comm); at++)
             if (mine[at] > 0) flowed(self, comm, SENDS_ONE, at, bytes_of(mine[at], handle_at(of, at))))

/* among neighbours: who they are is known to the topology alone, so these are no part of a pair */
EACH_TIMED(LARGE(Neighbor_allgather), COLLECTIVE, 7)
EACH_TIMED(LARGE(Neighbor_allgatherv), COLLECTIVE, 8)
EACH_TIMED(LARGE(Neighbor_alltoall), COLLECTIVE, 7)
EACH_TIMED(LARGE(Neighbor_alltoallv), COLLECTIVE, 9)
EACH_TIMED(LARGE(Neighbor_alltoallw), COLLECTIVE, 9)
EACH_TIMED(LARGE(Ineighbor_allgather), COLLECTIVE, 8)
EACH_TIMED(LARGE(Ineighbor_allgatherv), COLLECTIVE, 9)
EACH_TIMED(LARGE(Ineighbor_alltoall), COLLECTIVE, 8)
EACH_TIMED(LARGE(Ineighbor_alltoallv), COLLECTIVE, 10)
EACH_TIMED(LARGE(Ineighbor_alltoallw), COLLECTIVE, 10)

/* -- one-sided -------------------------------------------------------------------------------------------------------- */
#define RMA const void *from, N count, H type, int rank, intptr_t at, N target_count, H target_type
#define RMA_WORDS from, count, type, rank, at, target_count, target_type
#define PUT uint64_t bytes = bytes_of(count, type); MOVED(self, bytes), put(who, bytes)
#define GET uint64_t bytes = bytes_of(count, type); got(who, bytes)
#define TO_RANK peer_of_window(win, rank)
EACH(LARGE(Put), ONE_SIDED, (RMA, H win), (RMA_WORDS, win), TO_RANK, PUT)
EACH(LARGE(Get), ONE_SIDED, (RMA, H win), (RMA_WORDS, win), TO_RANK, GET)
EACH(LARGE(Accumulate), ONE_SIDED, (RMA, H op, H win), (RMA_WORDS, op, win), TO_RANK, PUT)
EACH(LARGE(Rput), ONE_SIDED, (RMA, H win, void *request), (RMA_WORDS, win, request), TO_RANK, PUT; forget_at(request))
EACH(LARGE(Rget), ONE_SIDED, (RMA, H win, void *request), (RMA_WORDS, win, request), TO_RANK, GET; forget_at(request))
EACH(LARGE(Raccumulate), ONE_SIDED, (RMA, H op, H win, void *request), (RMA_WORDS, op, win, request), TO_RANK,
     PUT; forget_at(request))
#define RMA_BOTH const void *from, N count, H type, void *result, N result_count, H result_type, int rank, intptr_t at, \
                 N target_count, H target_type, H op, H win
#define RMA_BOTH_WORDS from, count, type, result, result_count, result_type, rank, at, target_count, target_type, op, win
EACH(LARGE(Get_accumulate), ONE_SIDED, (RMA_BOTH), (RMA_BOTH_WORDS), TO_RANK,
     PUT; got(who, bytes_of(result_count, result_type)))
EACH(LARGE(Rget_accumulate), ONE_SIDED, (RMA_BOTH, void *request), (RMA_BOTH_WORDS, request), TO_RANK,
     PUT; got(who, bytes_of(result_count, result_type)); forget_at(request))
EACH_TIMED(LARGE(Win_create), ONE_SIDED, 6)
EACH_TIMED(LARGE(Win_allocate), ONE_SIDED, 6)
EACH_TIMED(LARGE(Win_allocate_shared), ONE_SIDED, 6)

/* -- files: time, and the bytes of the calls that move them ------------------------------------------------------------- */
#define MOVES(name)                                                                                        \
  EACH(LARGE(name), FILES, (H file, void *buf, N count, H type, void *status),                             \
       (file, buf, count, type, status), -1, MOVED(self, bytes_of(count, type)))
#define MOVES_AT(name)                                                                                     \
  EACH(LARGE(name), FILES, (H file, int64_t offset, void *buf, N count, H type, void *status),             \
       (file, offset, buf, count, type, status), -1, MOVED(self, bytes_of(count, type)))
#define IMOVES(name)                                                                                       \
  EACH(LARGE(name), FILES, (H file, void *buf, N count, H type, void *request),                            \
       (file, buf, count, type, request), -1, MOVED(self, bytes_of(count, type)); forget_at(request))
#define IMOVES_AT(name)                                                                                    \
  EACH(LARGE(name), FILES, (H file, int64_t offset, void *buf, N count, H type, void *request),            \
       (file, offset, buf, count, type, request), -1, MOVED(self, bytes_of(count, type)); forget_at(request))
MOVES(File_read)
MOVES(File_write)
MOVES(File_read_all)
MOVES(File_write_all)
MOVES(File_read_shared)
MOVES(File_write_shared)
MOVES(File_read_ordered)
MOVES(File_write_ordered)
MOVES_AT(File_read_at)
MOVES_AT(File_write_at)
MOVES_AT(File_read_at_all)
MOVES_AT(File_write_at_all)
IMOVES(File_iread)
IMOVES(File_iwrite)
IMOVES(File_iread_all)
IMOVES(File_iwrite_all)
IMOVES(File_iread_shared)
IMOVES(File_iwrite_shared)
IMOVES_AT(File_iread_at)
IMOVES_AT(File_iwrite_at)
IMOVES_AT(File_iread_at_all)
IMOVES_AT(File_iwrite_at_all)
EACH_TIMED(LARGE(File_read_all_begin), FILES, 4)
EACH_TIMED(LARGE(File_write_all_begin), FILES, 4)
EACH_TIMED(LARGE(File_read_at_all_begin), FILES, 5)
EACH_TIMED(LARGE(File_write_at_all_begin), FILES, 5)
EACH_TIMED(LARGE(File_read_ordered_begin), FILES, 4)
EACH_TIMED(LARGE(File_write_ordered_begin), FILES, 4)
