-- SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y <> r.b) AND NOT EXISTS (SELECT 1 FROM t WHERE t.k = r.a AND t.v > r.b)

-- @: rows, key _hw_key_1, changes signed
SELECT
  `a` AS `a`,
  `b` AS `b`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `b`,
    `_hw_key_1`,
    `_hw_old__hw_key_1`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `b`,
      `_hw_key_1`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `b` AS `b`,
        `r_rowid` AS `_hw_key_1`,
        `_hw_w`
      FROM (
        SELECT
          `a`,
          `b`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            _l.`a`,
            _l.`b`,
            _l.`r_rowid`,
            _l.`_hw_w`
          FROM (
            SELECT
              _l.`a`,
              _l.`b`,
              _l.`r_rowid`,
              _l.`_hw_w`
            FROM (
              SELECT
                `a` AS `a`,
                `b` AS `b`,
                `rowid` AS `r_rowid`,
                `_hw_w`
              FROM `r@delta`
            ) AS _l
            LEFT SEMI JOIN (
              SELECT
                _l.`a_2`,
                _l.`y`,
                _l.`s_rowid`
              FROM (
                SELECT
                  `a` AS `a_2`,
                  `y` AS `y`,
                  `rowid` AS `s_rowid`
                FROM `s@old`
              ) AS _l
              LEFT SEMI JOIN (
                SELECT
                  `_hw_key_0`
                FROM (
                  SELECT
                    `a` AS `_hw_key_0`,
                    `r_rowid`,
                    `_hw_w`
                  FROM (
                    SELECT
                      `a` AS `a`,
                      `b` AS `b`,
                      `rowid` AS `r_rowid`,
                      `_hw_w`
                    FROM `r@delta`
                  ) AS _t
                ) AS _t
                GROUP BY
                  `_hw_key_0`
              ) AS _r
                ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
            ) AS _r
              ON `a_2` = `a` AND `y` <> `b`
          ) AS _l
          LEFT ANTI JOIN (
            SELECT
              _l.`k`,
              _l.`v`,
              _l.`t_rowid`
            FROM (
              SELECT
                `k` AS `k`,
                `v` AS `v`,
                `rowid` AS `t_rowid`
              FROM `t@old`
            ) AS _l
            LEFT SEMI JOIN (
              SELECT
                `_hw_key_0`
              FROM (
                SELECT
                  `a` AS `_hw_key_0`,
                  `r_rowid`,
                  `_hw_w`
                FROM (
                  SELECT
                    _l.`a`,
                    _l.`b`,
                    _l.`r_rowid`,
                    _l.`_hw_w`
                  FROM (
                    SELECT
                      `a` AS `a`,
                      `b` AS `b`,
                      `rowid` AS `r_rowid`,
                      `_hw_w`
                    FROM `r@delta`
                  ) AS _l
                  LEFT SEMI JOIN (
                    SELECT
                      _l.`a_2`,
                      _l.`y`,
                      _l.`s_rowid`
                    FROM (
                      SELECT
                        `a` AS `a_2`,
                        `y` AS `y`,
                        `rowid` AS `s_rowid`
                      FROM `s@old`
                    ) AS _l
                    LEFT SEMI JOIN (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a` AS `_hw_key_0`,
                          `r_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a`,
                            `b` AS `b`,
                            `rowid` AS `r_rowid`,
                            `_hw_w`
                          FROM `r@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _r
                      ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
                  ) AS _r
                    ON `a_2` = `a` AND `y` <> `b`
                ) AS _t
              ) AS _t
              GROUP BY
                `_hw_key_0`
            ) AS _r
              ON `k` IS NOT DISTINCT FROM `_hw_key_0`
          ) AS _r
            ON `k` = `a` AND `v` > `b`
        ) AS _t
        UNION ALL
        SELECT
          `a`,
          `b`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `r_rowid`,
            CAST(1 AS INT) AS `_hw_w`
          FROM (
            SELECT
              _l.`a`,
              _l.`b`,
              _l.`r_rowid`
            FROM (
              SELECT
                _l.`a`,
                _l.`b`,
                _l.`r_rowid`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`b`,
                  _l.`r_rowid`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `b` AS `b`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `y` AS `y`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                    UNION ALL
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `k` AS `_hw_key_0`,
                          `t_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `k` AS `k`,
                            `v` AS `v`,
                            `rowid` AS `t_rowid`,
                            `_hw_w`
                          FROM `t@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _l
              LEFT SEMI JOIN (
                SELECT
                  _l.`a_2`,
                  _l.`y`,
                  _l.`s_rowid`
                FROM (
                  SELECT
                    `a` AS `a_2`,
                    `y` AS `y`,
                    `rowid` AS `s_rowid`
                  FROM `s@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `y` AS `y`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                    UNION ALL
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `k` AS `_hw_key_0`,
                          `t_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `k` AS `k`,
                            `v` AS `v`,
                            `rowid` AS `t_rowid`,
                            `_hw_w`
                          FROM `t@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _r
                ON `a_2` = `a` AND `y` <> `b`
            ) AS _l
            LEFT ANTI JOIN (
              SELECT
                _l.`k`,
                _l.`v`,
                _l.`t_rowid`
              FROM (
                SELECT
                  `k` AS `k`,
                  `v` AS `v`,
                  `rowid` AS `t_rowid`
                FROM `t@new`
              ) AS _l
              LEFT SEMI JOIN (
                SELECT
                  `_hw_key_0`
                FROM (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `a_2` AS `_hw_key_0`,
                        `s_rowid`,
                        `_hw_w`
                      FROM (
                        SELECT
                          `a` AS `a_2`,
                          `y` AS `y`,
                          `rowid` AS `s_rowid`,
                          `_hw_w`
                        FROM `s@delta`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _t
                  UNION ALL
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `k` AS `_hw_key_0`,
                        `t_rowid`,
                        `_hw_w`
                      FROM (
                        SELECT
                          `k` AS `k`,
                          `v` AS `v`,
                          `rowid` AS `t_rowid`,
                          `_hw_w`
                        FROM `t@delta`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _t
                ) AS _t
                GROUP BY
                  `_hw_key_0`
              ) AS _r
                ON `k` IS NOT DISTINCT FROM `_hw_key_0`
            ) AS _r
              ON `k` = `a` AND `v` > `b`
          ) AS _t
        ) AS _t
        UNION ALL
        SELECT
          `a`,
          `b`,
          `r_rowid`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `r_rowid`,
            CAST(-1 AS INT) AS `_hw_w`
          FROM (
            SELECT
              _l.`a`,
              _l.`b`,
              _l.`r_rowid`
            FROM (
              SELECT
                _l.`a`,
                _l.`b`,
                _l.`r_rowid`
              FROM (
                SELECT
                  _l.`a`,
                  _l.`b`,
                  _l.`r_rowid`
                FROM (
                  SELECT
                    `a` AS `a`,
                    `b` AS `b`,
                    `rowid` AS `r_rowid`
                  FROM `r@new`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `y` AS `y`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                    UNION ALL
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `k` AS `_hw_key_0`,
                          `t_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `k` AS `k`,
                            `v` AS `v`,
                            `rowid` AS `t_rowid`,
                            `_hw_w`
                          FROM `t@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _l
              LEFT SEMI JOIN (
                SELECT
                  _l.`a_2`,
                  _l.`y`,
                  _l.`s_rowid`
                FROM (
                  SELECT
                    `a` AS `a_2`,
                    `y` AS `y`,
                    `rowid` AS `s_rowid`
                  FROM `s@old`
                ) AS _l
                LEFT SEMI JOIN (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `a_2` AS `_hw_key_0`,
                          `s_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `a` AS `a_2`,
                            `y` AS `y`,
                            `rowid` AS `s_rowid`,
                            `_hw_w`
                          FROM `s@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                    UNION ALL
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `_hw_key_0`
                      FROM (
                        SELECT
                          `k` AS `_hw_key_0`,
                          `t_rowid`,
                          `_hw_w`
                        FROM (
                          SELECT
                            `k` AS `k`,
                            `v` AS `v`,
                            `rowid` AS `t_rowid`,
                            `_hw_w`
                          FROM `t@delta`
                        ) AS _t
                      ) AS _t
                      GROUP BY
                        `_hw_key_0`
                    ) AS _t
                  ) AS _t
                  GROUP BY
                    `_hw_key_0`
                ) AS _r
                  ON `a_2` IS NOT DISTINCT FROM `_hw_key_0`
              ) AS _r
                ON `a_2` = `a` AND `y` <> `b`
            ) AS _l
            LEFT ANTI JOIN (
              SELECT
                _l.`k`,
                _l.`v`,
                _l.`t_rowid`
              FROM (
                SELECT
                  `k` AS `k`,
                  `v` AS `v`,
                  `rowid` AS `t_rowid`
                FROM `t@old`
              ) AS _l
              LEFT SEMI JOIN (
                SELECT
                  `_hw_key_0`
                FROM (
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `a_2` AS `_hw_key_0`,
                        `s_rowid`,
                        `_hw_w`
                      FROM (
                        SELECT
                          `a` AS `a_2`,
                          `y` AS `y`,
                          `rowid` AS `s_rowid`,
                          `_hw_w`
                        FROM `s@delta`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _t
                  UNION ALL
                  SELECT
                    `_hw_key_0`
                  FROM (
                    SELECT
                      `_hw_key_0`
                    FROM (
                      SELECT
                        `k` AS `_hw_key_0`,
                        `t_rowid`,
                        `_hw_w`
                      FROM (
                        SELECT
                          `k` AS `k`,
                          `v` AS `v`,
                          `rowid` AS `t_rowid`,
                          `_hw_w`
                        FROM `t@delta`
                      ) AS _t
                    ) AS _t
                    GROUP BY
                      `_hw_key_0`
                  ) AS _t
                ) AS _t
                GROUP BY
                  `_hw_key_0`
              ) AS _r
                ON `k` IS NOT DISTINCT FROM `_hw_key_0`
            ) AS _r
              ON `k` = `a` AND `v` > `b`
          ) AS _t
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `b`,
      `_hw_key_1`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
) AS _t
